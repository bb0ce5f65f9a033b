"""What tests share. Test modules import from here and never from each other."""
