# install(), the CMake package and tapegrad.pc
include(CMakePackageConfigHelpers)
install(TARGETS tapegrad tapegrad_train tapegrad_models tapegrad_data EXPORT tapegrad-targets)
install(DIRECTORY include/tapegrad DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT tapegrad-targets NAMESPACE tapegrad::
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/tapegrad)
configure_package_config_file(cmake/tapegrad-config.cmake.in
  ${PROJECT_BINARY_DIR}/tapegrad-config.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/tapegrad)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/tapegrad-config-version.cmake
  COMPATIBILITY SameMinorVersion)
configure_file(cmake/tapegrad.pc.in ${PROJECT_BINARY_DIR}/tapegrad.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/tapegrad-config.cmake
  ${PROJECT_BINARY_DIR}/tapegrad-config-version.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/tapegrad)
install(FILES ${PROJECT_BINARY_DIR}/tapegrad.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
