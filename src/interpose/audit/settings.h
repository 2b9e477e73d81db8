// What `commpool audit` asks of the library that it injects: COMMPOOL_AUDIT, "KEY=VALUE,...".
#pragma once

#include <cstdint>
#include <string>

namespace commpool::audit {

struct Settings {
  bool asked = false;        // the variable is set at all
  bool by_cupti = true;      // by=preload: without CUPTI
  std::string cupti;         // its file; empty: the one that is loaded, else the system's
  std::string record;        // each report is a line of JSON in this file; empty: none
  int signal = 0;            // asks for a report; 0: none
  uint64_t limit_bytes = 0;  // of a device: a report when the process first holds more; 0: none
  bool python_stacks = false;
  int started_by = 0;  // the process that `commpool audit` became: it says so where it used no device

  static Settings FromText(const char* text);  // null: the variable is not set
};

}  // namespace commpool::audit
