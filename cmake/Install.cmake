# `cmake --install`: the library, its headers, the command, and what find_package and pkg-config read. Included last:
# the targets must be there.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/megamoe)
install(TARGETS megamoe EXPORT megamoe_targets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
        INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
if(MEGAMOE_CLI)
  install(TARGETS megamoe_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/megamoe DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        FILES_MATCHING PATTERN "*.hpp" PATTERN "*.h")
install(EXPORT megamoe_targets NAMESPACE megamoe:: DESTINATION ${package_dir})

# A static library leaves what it uses to be found by those who link it; a shared one has it.
get_target_property(library_type megamoe TYPE)
set(MEGAMOE_IS_STATIC OFF)
if(library_type STREQUAL "STATIC_LIBRARY")
  set(MEGAMOE_IS_STATIC ON)
endif()
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/megamoe-config.cmake.in
  ${PROJECT_BINARY_DIR}/megamoe-config.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/megamoe-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/megamoe-config.cmake ${PROJECT_BINARY_DIR}/megamoe-config-version.cmake
        DESTINATION ${package_dir})

# The prefix is where megamoe.pc lies, so that an installed tree can be moved.
file(RELATIVE_PATH MEGAMOE_PC_TO_PREFIX /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
string(REGEX REPLACE "/$" "" MEGAMOE_PC_TO_PREFIX "${MEGAMOE_PC_TO_PREFIX}")
set(MEGAMOE_PC_LIBS_PRIVATE "-lstdc++ -lm -pthread")
if(MEGAMOE_HAS_CUDA)
  string(APPEND MEGAMOE_PC_LIBS_PRIVATE " -L${CUDAToolkit_LIBRARY_DIR} -lcudart_static -ldl -lrt")
endif()
configure_file(${PROJECT_SOURCE_DIR}/cmake/megamoe.pc.in ${PROJECT_BINARY_DIR}/megamoe.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/megamoe.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
