// How a test tells the stand-in driver what to be. Looked up in it as `commpoolStandInDriver`.
#ifndef COMMPOOL_TESTS_DRIVER_STAND_IN_DRIVER_H_
#define COMMPOOL_TESTS_DRIVER_STAND_IN_DRIVER_H_

#include <cuda.h>

struct StandInDriver {
  CUresult init_result;
  int devices;
  const char* lacking;  // a function that it has not; null for none
};

#endif  // COMMPOOL_TESTS_DRIVER_STAND_IN_DRIVER_H_
