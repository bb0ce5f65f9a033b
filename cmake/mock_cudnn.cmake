# The mock of the CUDA driver and cuDNN (tests/cudnn/mock/mock_cudnn.h), in the folder mock:
#
#   libmock_cudnn.so          opened by tests/cudnn and the Python tests
#   libmock_cudnn_named.so    has cuDNN's name for the loader, libcudnn.so.9
#   libmock_cudnn_8.so        has the name libcudnn.so.8 and reports version 8.9.7
#   libmock_cudnn_old.so      has the name libcudnn.so.7 and reports version 7.6.5
#   libmock_cudnn_missing.so  lacks cudnnRNNBackwardWeights_v8
#   libcudnn_*.so.*           the parts of the real cuDNN 8 and 9 that RNNs need, all empty, linked
#                             against one another like the real ones

set(mock_folder "${PROJECT_BINARY_DIR}/mock")
file(GLOB mock_sources CONFIGURE_DEPENDS "${tests}/cudnn/mock/*.cc")
set(mock_version_source "${tests}/cudnn/mock/version.cc")
list(REMOVE_ITEM mock_sources "${mock_version_source}")
add_library(mock OBJECT EXCLUDE_FROM_ALL ${mock_sources})
add_custom_target(mock_cudnn)

# put_in_mock_folder(NAME): the parts are in the folder of the library that loads them.
function(put_in_mock_folder name)
  set_target_properties(
    ${name} PROPERTIES LIBRARY_OUTPUT_DIRECTORY "${mock_folder}" BUILD_WITH_INSTALL_RPATH ON
                       INSTALL_RPATH "\$ORIGIN")
  add_dependencies(mock_cudnn ${name})
endfunction()

# add_mock(NAME SONAME EXPORTS DEFINITION...): an empty SONAME is none.
function(add_mock name soname exports)
  add_library(${name} MODULE EXCLUDE_FROM_ALL "${mock_version_source}" $<TARGET_OBJECTS:mock>
                                              ${core_objects} ${cpu_objects})
  put_in_mock_folder(${name})
  target_compile_definitions(${name} PRIVATE ${ARGN})
  file(CONFIGURE OUTPUT "${mock_folder}/${name}.map" CONTENT "${exports}\n")
  target_link_options(${name} PRIVATE "-Wl,--version-script=${mock_folder}/${name}.map"
                      -Wl,-Bsymbolic)
  if(soname)
    target_link_options(${name} PRIVATE "-Wl,-soname,${soname}")
  endif()
endfunction()

set(version_9 "CUDNN_RNN_MOCK_PART=\"libcudnn_graph.so.9\"")
set(version_8 "CUDNN_RNN_MOCK_PART=\"libcudnn_ops_infer.so.8\""
              CUDNN_RNN_MOCK_DEFAULT_VERSION=8907)
set(version_7 CUDNN_RNN_MOCK_DEFAULT_VERSION=7605)
set(all "{ global: cu*; mock_*; local: *; };")
set(all_but_one "{ global: cu*; mock_*; local: cudnnRNNBackwardWeights_v8; *; };")
add_mock(mock_cudnn_9 "" "${all}" ${version_9})
set_target_properties(mock_cudnn_9 PROPERTIES OUTPUT_NAME mock_cudnn)
add_mock(mock_cudnn_named libcudnn.so.9 "${all}" ${version_9})
add_mock(mock_cudnn_missing "" "${all_but_one}" ${version_9})
add_mock(mock_cudnn_8 libcudnn.so.8 "${all}" ${version_8})
add_mock(mock_cudnn_old libcudnn.so.7 "${all}" ${version_7})

# add_part(NAME VERSION NEEDED...)
function(add_part name version)
  set(target ${name}_${version})
  add_library(${target} SHARED EXCLUDE_FROM_ALL "${mock_folder}/empty.cc")
  put_in_mock_folder(${target})
  set_target_properties(${target} PROPERTIES OUTPUT_NAME ${name} SUFFIX .so.${version})
  target_link_options(${target} PRIVATE -Wl,--no-as-needed)
  foreach(needed IN LISTS ARGN)
    target_link_libraries(${target} PRIVATE ${needed}_${version})
  endforeach()
endfunction()

file(CONFIGURE OUTPUT "${mock_folder}/empty.cc" CONTENT "")
add_part(cudnn_graph 9)
add_part(cudnn_ops 9 cudnn_graph)
add_part(cudnn_adv 9 cudnn_ops cudnn_graph)
add_part(cudnn_ops_infer 8)
add_part(cudnn_ops_train 8 cudnn_ops_infer)
add_part(cudnn_adv_infer 8 cudnn_ops_infer)
add_part(cudnn_adv_train 8 cudnn_ops_infer cudnn_ops_train cudnn_adv_infer)
