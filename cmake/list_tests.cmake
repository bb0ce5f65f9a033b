# CTest includes this file for each test program and gives it name, program, emulator and mock_folder.

if(EXISTS "${program}")
  execute_process(COMMAND ${emulator} "${program}" --list OUTPUT_VARIABLE names
                  RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "${program} --list failed: ${status}")
  endif()
  string(REGEX MATCHALL "[^\n]+" names "${names}")
  foreach(test IN LISTS names)
    add_test("${name}.${test}" ${emulator} "${program}" --only ${test})
    # The program itself ends a test that hangs, with its name, after an hour.
    set_tests_properties("${name}.${test}" PROPERTIES LABELS ${name} TIMEOUT 4000 ENVIRONMENT
                         "CUDNN_RNN_MOCK_FOLDER=${mock_folder}")
  endforeach()
endif()
