# Headers of other libraries that most sources of a target include are parsed once instead of in each. ccache does not see
# through precompiled headers unless it is told to, so a build with a compiler launcher has none. A source includes what
# it uses all the same: the builds of tools/lint and tools/fuzz do without.
if(CMAKE_CXX_COMPILER_LAUNCHER)
  set(precompile OFF)
else()
  set(precompile ON)
endif()
option(MEGAMOE_PRECOMPILE "Precompile headers of other libraries" ${precompile})

# megamoe_precompile(<target> <headers>): for this target alone.
function(megamoe_precompile target)
  if(MEGAMOE_PRECOMPILE)
    target_precompile_headers(${target} PRIVATE ${ARGN})
  endif()
endfunction()

# megamoe_precompiled(<name> LINK <libraries> HEADERS <headers>): for all targets that share compile options and call
# megamoe_use_precompiled(<target> <name>).
function(megamoe_precompiled name)
  cmake_parse_arguments(SHARED "" "" "LINK;HEADERS" ${ARGN})
  if(MEGAMOE_PRECOMPILE)
    file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/${name}.cpp CONTENT "")
    add_library(${name} OBJECT ${CMAKE_CURRENT_BINARY_DIR}/${name}.cpp)
    target_link_libraries(${name} PRIVATE ${SHARED_LINK})
    target_precompile_headers(${name} PRIVATE ${SHARED_HEADERS})
  endif()
endfunction()

function(megamoe_use_precompiled target name)
  if(MEGAMOE_PRECOMPILE)
    target_precompile_headers(${target} REUSE_FROM ${name})
  endif()
endfunction()
