// How a test configures the stand-in driver, which exports it as `commpoolStandInDriver`.
#ifndef COMMPOOL_TESTS_DRIVER_STAND_IN_DRIVER_H_
#define COMMPOOL_TESTS_DRIVER_STAND_IN_DRIVER_H_

#include <cuda.h>

struct StandInDriver {
  CUresult init_result;
  int devices;
  const char* lacking;  // a function that it lacks; null: none
};

#endif  // COMMPOOL_TESTS_DRIVER_STAND_IN_DRIVER_H_
