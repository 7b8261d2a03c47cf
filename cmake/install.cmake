# Installation: the libraries, the CMake package and tapegrad.pc.
include(CMakePackageConfigHelpers)
set(TP_PARTS train models data detection) # components of find_package, as tapegrad itself
set(TP_LIBRARIES ${TP_PARTS})
list(TRANSFORM TP_LIBRARIES PREPEND tapegrad_)
install(TARGETS tapegrad ${TP_LIBRARIES} EXPORT tapegrad-targets)
install(DIRECTORY include/tapegrad ${PROJECT_BINARY_DIR}/include/tapegrad
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT tapegrad-targets NAMESPACE tapegrad::
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/tapegrad)
configure_package_config_file(cmake/tapegrad-config.cmake.in
  ${PROJECT_BINARY_DIR}/tapegrad-config.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/tapegrad)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/tapegrad-config-version.cmake
  COMPATIBILITY SameMinorVersion)
# The prefix is relative to the .pc file, so that --prefix and moved folders work. For static
# libraries Libs includes the dependencies even without pkg-config --static. Requires.private is not
# used, because it would add the static dependencies of the dependencies.
if(IS_ABSOLUTE ${CMAKE_INSTALL_LIBDIR} OR IS_ABSOLUTE ${CMAKE_INSTALL_INCLUDEDIR})
  set(TP_PC_PREFIX ${CMAKE_INSTALL_PREFIX})
  set(TP_PC_LIBDIR ${CMAKE_INSTALL_FULL_LIBDIR})
  set(TP_PC_INCLUDEDIR ${CMAKE_INSTALL_FULL_INCLUDEDIR})
else()
  set(TP_PC_LIBDIR "\${prefix}/${CMAKE_INSTALL_LIBDIR}")
  set(TP_PC_INCLUDEDIR "\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}")
  file(RELATIVE_PATH TP_PC_PREFIX /p/${CMAKE_INSTALL_LIBDIR}/pkgconfig /p)
  string(REGEX REPLACE "/$" "" TP_PC_PREFIX "\${pcfiledir}/${TP_PC_PREFIX}")
endif()
set(TP_PC_NEEDS ${JANSSON_LDFLAGS} ${XXHASH_LDFLAGS} ${LIBARCHIVE_LDFLAGS}
  ${JPEG_LDFLAGS} ${PNG_LDFLAGS} -lm -lpthread -ldl)
list(REMOVE_DUPLICATES TP_PC_NEEDS)
list(JOIN TP_PC_NEEDS " " TP_PC_NEEDS)
if(BUILD_SHARED_LIBS)
  set(TP_PC_PUBLIC "")
else()
  set(TP_PC_PUBLIC " ${TP_PC_NEEDS}")
  set(TP_PC_NEEDS "")
endif()
set(TP_PC_LIBS "-ltapegrad_train -ltapegrad_detection -ltapegrad_models -ltapegrad_data -ltapegrad")
configure_file(cmake/tapegrad.pc.in ${PROJECT_BINARY_DIR}/tapegrad.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/tapegrad-config.cmake
  ${PROJECT_BINARY_DIR}/tapegrad-config-version.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/tapegrad)
install(FILES ${PROJECT_BINARY_DIR}/tapegrad.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
