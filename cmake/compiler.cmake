# The flags of every source, and the cache of objects.

set(CMAKE_CXX_STANDARD 14)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)

# The compiler vectorizes loops of plain C++, which requires -O3 and permission to ignore
# floating-point traps. NaN, infinities and the order of additions keep their meaning. Multiplication
# and addition are fused only where the code says so: left to the compiler, the same expression could
# have other bits in another instance of a template.
set(compile_flags
    -O3
    -ffp-contract=off
    -fno-trapping-math
    -fno-math-errno
    -fPIC
    -fvisibility=hidden
    -Wall
    -Wextra
    -DNDEBUG
    -pthread)

# The libraries must not contain paths of the build machine.
list(APPEND compile_flags -g0 "-ffile-prefix-map=${PROJECT_SOURCE_DIR}/=")

if(CUDNN_RNN_OLD_SYSTEMS)
  list(APPEND compile_flags -include cudnn_rnn/cc/core/old_systems.h -fno-sized-deallocation)
  add_link_options(-Wl,--no-as-needed -l:libdl.so.2 -l:libpthread.so.0 -Wl,--as-needed)
endif()

# CXXFLAGS come last, so they override these flags.
list(JOIN compile_flags " " compile_flags)
string(PREPEND CMAKE_CXX_FLAGS "${compile_flags} ")
include_directories("${PROJECT_SOURCE_DIR}")

if(CUDNN_RNN_SANITIZERS)
  add_compile_options(-Werror -O1 -g1 "-fsanitize=${CUDNN_RNN_SANITIZERS}" -fno-sanitize-recover=all
                      -fno-omit-frame-pointer)
  add_link_options("-fsanitize=${CUDNN_RNN_SANITIZERS}")
endif()

add_link_options(-pthread)
link_libraries(${CMAKE_DL_LIBS})

# Reuses objects that another build folder compiled, such as those of the engine, which are the same
# for every TensorFlow.
find_program(CUDNN_RNN_COMPILER_CACHE NAMES ccache sccache
             DOC "The program that caches objects; an empty value turns it off")
if(CUDNN_RNN_COMPILER_CACHE AND NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${CUDNN_RNN_COMPILER_CACHE}")
endif()

# The compiler of the build info, which setup.py writes.
get_filename_component(compiler_name "${CMAKE_CXX_COMPILER}" NAME)
file(WRITE "${PROJECT_BINARY_DIR}/compiler.json"
     "{\"compiler\": \"${compiler_name} ${CMAKE_CXX_COMPILER_VERSION}\", "
     "\"machine\": \"${CMAKE_SYSTEM_PROCESSOR}\"}\n")
