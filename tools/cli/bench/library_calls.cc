#include "tools/cli/bench/library_calls.h"

#include <vector>

#include "commpool/commpool.h"

namespace commpool::cli {

std::map<std::string, double> MicrosecondsByCall() {
  std::vector<commpool_driver_call> calls(256);
  size_t count = 0;
  std::map<std::string, double> found;
  if (commpool_driver_calls(calls.data(), sizeof(calls[0]), calls.size(), &count) != COMMPOOL_OK) return found;
  for (size_t place = 0; place < count && place < calls.size(); ++place) {
    found[calls[place].name] = calls[place].microseconds;
  }
  return found;
}

}  // namespace commpool::cli
