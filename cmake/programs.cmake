# Programs without TensorFlow: benchmarks, trials and fuzzing.

set(tests "${PROJECT_SOURCE_DIR}/tests")

# add_program(NAME SOURCE...): adds a program that is built only when asked for.
function(add_program name)
  add_executable(${name} EXCLUDE_FROM_ALL ${ARGN})
  set_target_properties(${name} PROPERTIES
                        RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/programs")
endfunction()

# Benchmarks.
add_program(core_benchmark "${PROJECT_SOURCE_DIR}/benchmarks/cpu/core_benchmark.cc" ${core_objects}
            ${cpu_objects})
add_program(read_bandwidth "${PROJECT_SOURCE_DIR}/benchmarks/cpu/read_bandwidth.cc")
target_compile_options(read_bandwidth PRIVATE -march=native) # the widest vectors

# Trials: tests/trials.
foreach(name concurrent_writers out_of_memory)
  add_program(${name} "${tests}/trials/${name}.cc" ${core_objects} ${cpu_objects})
endforeach()
add_program(random_inputs "${tests}/fuzz/fuzz_targets.cc" "${tests}/fuzz/random_inputs_main.cc"
            ${all_objects})

# Fuzzing with libFuzzer: tests/trials/fuzz.
if(CUDNN_RNN_SANITIZERS MATCHES "fuzzer")
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "The compiler is ${CMAKE_CXX_COMPILER}, but libFuzzer needs clang++. Set CXX "
                        "to a clang++.")
  endif()
  # Clang needs minutes for the large functions of the kernels, even without coverage, which would
  # guide nothing there. The sanitized core tests check their undefined behavior.
  file(GLOB kernels CONFIGURE_DEPENDS "${cc}/cpu/kernels_*.cc")
  set_source_files_properties(${kernels} PROPERTIES COMPILE_OPTIONS
                              "-fno-sanitize=undefined,fuzzer-no-link")
  add_program(fuzz "${tests}/fuzz/fuzz_targets.cc" "${tests}/fuzz/libfuzzer_main.cc" ${all_objects})
  target_link_options(fuzz PRIVATE -fsanitize=fuzzer)
endif()

# The explorer of the team's schedules: tests/schedules. tests/schedules/mutants.py changes the team
# in another folder.
set(CUDNN_RNN_TEAM_FOLDER "${PROJECT_SOURCE_DIR}" CACHE PATH
    "The folder whose cudnn_rnn/cc/core has the team that the schedules explore")
set(explorer_options -Werror -g1 -U_FORTIFY_SOURCE -fno-pie)
set(team "${CUDNN_RNN_TEAM_FOLDER}/cudnn_rnn/cc/core")
add_library(observed OBJECT EXCLUDE_FROM_ALL "${team}/team.cc" "${team}/team_recruiter.cc"
            "${tests}/schedules/cases.cc")
# Compiled for the thread sanitizer, but not linked to its library: interface.cc takes its place.
target_compile_options(observed PRIVATE ${explorer_options} -O1 -fsanitize=thread)
target_include_directories(observed BEFORE PRIVATE "${CUDNN_RNN_TEAM_FOLDER}")
file(GLOB explorer_sources CONFIGURE_DEPENDS "${tests}/schedules/*.cc")
list(FILTER explorer_sources EXCLUDE REGEX "/cases\\.cc$")
# The linker keeps the first of functions that both halves have: the observed one.
add_program(schedules $<TARGET_OBJECTS:observed> ${explorer_sources})
target_compile_options(schedules PRIVATE ${explorer_options})
target_link_options(
  schedules PRIVATE -no-pie -Wl,--wrap=pthread_mutex_lock,--wrap=pthread_mutex_unlock
  -Wl,--wrap=_ZNSt6chrono3_V212steady_clock3nowEv)

# Libraries for LD_PRELOAD that make calls fail.
enable_language(C)
add_library(failing_allocations MODULE EXCLUDE_FROM_ALL "${tests}/trials/failing_allocations.cc")
add_library(failing_disk MODULE EXCLUDE_FROM_ALL "${tests}/trials/failing_disk.c")
foreach(name failing_allocations failing_disk)
  target_compile_options(${name} PRIVATE -O1 -Wall -Wextra -fvisibility=default)
  set_target_properties(${name} PROPERTIES PREFIX ""
                        LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/programs")
endforeach()

# Compares our declarations of CUDA and cuDNN with NVIDIA's headers: scripts/check_declarations.sh.
set(CUDNN_RNN_CUDA_HEADERS "" CACHE PATH "The folder third_party/gpus of TensorFlow's headers")
if(CUDNN_RNN_CUDA_HEADERS)
  add_library(declarations OBJECT EXCLUDE_FROM_ALL "${tests}/cudnn/declarations_check.cc")
  target_compile_options(declarations PRIVATE -Werror)
  target_include_directories(declarations SYSTEM PRIVATE "${CUDNN_RNN_CUDA_HEADERS}/cuda/include"
                             "${CUDNN_RNN_CUDA_HEADERS}/cudnn/include")
endif()
