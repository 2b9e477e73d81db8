// CUPTI's callbacks for the driver's calls. CUPTI is opened at run time.
#ifndef COMMPOOL_SRC_ADAPTERS_AUDIT_CUPTI_H_
#define COMMPOOL_SRC_ADAPTERS_AUDIT_CUPTI_H_

#include <string>

namespace commpool::audit {

// From now on the watched functions' calls come by callbacks. Returns why that cannot be; empty for success. `file` is
// CUPTI's; empty: the one that the process has loaded, as torch brings one, else the system's.
std::string SubscribeToCupti(const std::string& file);

}  // namespace commpool::audit

#endif  // COMMPOOL_SRC_ADAPTERS_AUDIT_CUPTI_H_
