# The engine: everything that needs no TensorFlow, as one shared library with a C interface.

set(cc "${PROJECT_SOURCE_DIR}/cudnn_rnn/cc")
foreach(folder core cpu cudnn engine)
  file(GLOB sources CONFIGURE_DEPENDS "${cc}/${folder}/*.cc")
  add_library(${folder} OBJECT ${sources})
  set(${folder}_objects $<TARGET_OBJECTS:${folder}>)
endforeach()
set(all_objects ${core_objects} ${cpu_objects} ${cudnn_objects} ${engine_objects})

# add_package_library(NAME TYPE SOURCE...): adds a library that the Python package contains.
function(add_package_library name type)
  add_library(${name} ${type} ${ARGN})
  set_target_properties(${name} PROPERTIES
                        LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/libraries" DEFINE_SYMBOL "")
  target_link_options(${name} PRIVATE -Wl,--strip-debug)
endfunction()

add_package_library(cudnn_rnn_engine SHARED ${all_objects})
set(exports "${cc}/engine/exports.map")
set_target_properties(cudnn_rnn_engine PROPERTIES LINKER_LANGUAGE CXX LINK_DEPENDS "${exports}")
target_link_options(cudnn_rnn_engine PRIVATE "-Wl,--version-script=${exports}")
if(NOT CUDNN_RNN_SANITIZERS) # with clang, the program defines the sanitizers' functions
  target_link_options(cudnn_rnn_engine PRIVATE -Wl,-z,defs)
endif()
