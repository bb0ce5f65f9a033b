# The C++ tests. CTest runs each test in a process of its own; `cpp.sh test` builds and runs them.

# add_test_program(NAME SOURCE...): adds a program with tests/core/main.cc, whose tests CTest asks for.
function(add_test_program name)
  add_program(${name} "${tests}/core/main.cc" ${ARGN})
  set(list "${PROJECT_BINARY_DIR}/${name}.cmake")
  file(GENERATE OUTPUT "${list}" CONTENT "
set(name ${name})
set(program \"$<TARGET_FILE:${name}>\")
set(emulator \"${CMAKE_CROSSCOMPILING_EMULATOR}\")
set(mock_folder \"${mock_folder}\")
include(\"${PROJECT_SOURCE_DIR}/cmake/list_tests.cmake\")
")
  set_property(DIRECTORY "${PROJECT_SOURCE_DIR}" APPEND PROPERTY TEST_INCLUDE_FILES "${list}")
endfunction()

# Sets emulated to the bfloat16 instruction sets that the processor of this machine lacks, although it
# has the AVX-512 that their emulations use. A build for another processor emulates none.
set(emulated "")
if(NOT CMAKE_CROSSCOMPILING)
  file(READ /proc/cpuinfo cpuinfo)
  foreach(feature avx512_bf16 amx_bf16)
    if(cpuinfo MATCHES "[ \t]avx512bw[ \n]" AND NOT cpuinfo MATCHES "[ \t]${feature}[ \n]")
      string(TOUPPER "CUDNN_RNN_EMULATES_${feature}" definition)
      list(APPEND emulated ${definition})
    endif()
  endforeach()
endif()

file(GLOB core_tests CONFIGURE_DEPENDS "${tests}/core/*_test.cc")
set(core_test_objects ${core_objects} ${cpu_objects})
if(emulated)
  message(STATUS "Emulated, as this processor lacks it: ${emulated}")
  file(GLOB emulations CONFIGURE_DEPENDS "${tests}/core/emulated/*.cc")
  set_source_files_properties(${emulations} PROPERTIES COMPILE_DEFINITIONS "${emulated}")
  list(APPEND core_tests ${emulations})
  foreach(emulation IN LISTS emulations)
    get_filename_component(name "${emulation}" NAME)
    string(REPLACE "." "\\." name "${name}")
    set(core_test_objects "$<FILTER:${core_test_objects},EXCLUDE,/cpu/${name}>")
  endforeach()
endif()
add_test_program(core_test ${core_tests} "${core_test_objects}")

# add_benchmark_test(NAME ARGUMENT...): a test of core_test that runs the benchmark.
function(add_benchmark_test name)
  add_test(NAME core_test.${name} COMMAND core_benchmark ${ARGN})
  set_tests_properties(core_test.${name} PROPERTIES LABELS core_test)
endfunction()
add_dependencies(core_test core_benchmark)
add_benchmark_test(BenchmarkOfTraining lstm-2x40-i7-bi-b5-t4-half --training --threads 3 --rounds 3)

add_test_program(team_test "${tests}/core/team_test.cc" ${core_objects}) # needs nothing but the core

file(GLOB cudnn_tests CONFIGURE_DEPENDS "${tests}/cudnn/*.cc")
list(FILTER cudnn_tests EXCLUDE REGEX "/declarations_check\\.cc$")
set(mocked_objects $<TARGET_OBJECTS:mock> ${all_objects})
add_test_program(cudnn_test ${cudnn_tests} "${tests}/fuzz/fuzz_targets.cc" "${mock_version_source}"
                 ${mocked_objects})
add_dependencies(cudnn_test mock_cudnn)

file(GLOB host_tests CONFIGURE_DEPENDS "${tests}/cudnn/host/*.cc")
add_test_program(host_cudnn_test ${host_tests} "${tests}/cudnn/plan_harness.cc"
                 "${mock_version_source}" ${mocked_objects})
