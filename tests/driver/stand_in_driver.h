// How a test configures the stand-in driver, which exports it as `commpoolStandInDriver`.
#pragma once

#include <cuda.h>

struct StandInDriver {
  CUresult init_result;
  int devices;
  const char* lacking;  // a function that it lacks; null: none
};
