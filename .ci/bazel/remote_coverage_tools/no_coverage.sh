#!/bin/sh
echo "no coverage tools here" >&2
exit 1
