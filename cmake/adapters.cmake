# The adapters: for each description in CUDNN_RNN_TENSORFLOWS, the library that registers the kernels
# in that TensorFlow. A description is a JSON file:
#
#   {"version": "2.21.0", "cxx11_abi": 1, "cxx_standard": 17, "machine": "x86_64",
#    "include_folders": ["..."], "definitions": ["EIGEN_MAX_ALIGN_BYTES=64"],
#    "library": ".../libtensorflow_framework.so.2"}

file(GLOB adapter_sources CONFIGURE_DEPENDS "${cc}/tf/*.cc")
# The part of the core that both sides of the engine's interface use.
foreach(name exceptions param_layout reserve_space rnn_config rnn_plan)
  list(APPEND adapter_sources "${cc}/core/${name}.cc")
endforeach()

# read_description(FILE): sets the variables that are named like the keys.
function(read_description file)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${file}")
  file(READ "${file}" json)
  foreach(key version cxx11_abi cxx_standard machine library)
    string(JSON value ERROR_VARIABLE problem GET "${json}" ${key})
    if(problem)
      message(FATAL_ERROR "${file} does not describe a TensorFlow: ${problem}. "
                          "cmake/adapters.cmake shows the expected keys.")
    endif()
    set(${key} "${value}" PARENT_SCOPE)
  endforeach()
  foreach(key include_folders definitions)
    string(JSON length LENGTH "${json}" ${key})
    set(values "")
    if(length GREATER 0)
      math(EXPR last "${length} - 1")
      foreach(index RANGE ${last})
        string(JSON value GET "${json}" ${key} ${index})
        list(APPEND values "${value}")
      endforeach()
    endif()
    set(${key} "${values}" PARENT_SCOPE)
  endforeach()
endfunction()

foreach(description IN LISTS CUDNN_RNN_TENSORFLOWS)
  read_description("${description}")
  if(NOT machine STREQUAL CMAKE_SYSTEM_PROCESSOR)
    message(FATAL_ERROR "${description} describes a TensorFlow for ${machine}, but this build is for "
                        "${CMAKE_SYSTEM_PROCESSOR}. Pass a description of a TensorFlow for "
                        "${CMAKE_SYSTEM_PROCESSOR}.")
  endif()
  # A version that is not a number, such as that of a build from source, is taken as a whole.
  string(REGEX REPLACE "^([0-9]+\\.[0-9]+).*" "\\1" minor_version "${version}")
  set(adapter ops_tf${minor_version}_abi${cxx11_abi})
  add_package_library(${adapter} MODULE ${adapter_sources})
  set_target_properties(${adapter} PROPERTIES PREFIX "" CXX_STANDARD ${cxx_standard})
  target_compile_definitions(${adapter} PRIVATE ${definitions} _GLIBCXX_USE_CXX11_ABI=${cxx11_abi})
  target_include_directories(${adapter} SYSTEM PRIVATE ${include_folders})
  # TensorFlow's headers use __FILE__ in their messages.
  list(TRANSFORM include_folders REPLACE "(.+)" "-ffile-prefix-map=\\1=tensorflow/include")
  target_compile_options(${adapter} PRIVATE ${include_folders})
  target_link_libraries(${adapter} PRIVATE cudnn_rnn_engine "${library}")
  # The engine is in the adapter's folder. An old tag, DT_RPATH, as LD_LIBRARY_PATH overrides the new.
  set_target_properties(${adapter} PROPERTIES BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "\$ORIGIN")
  target_link_options(${adapter} PRIVATE -Wl,--disable-new-dtags)
endforeach()
