// Where the owners of shared pools listen: sockets in a folder that nobody but this user may enter.
//
// A folder of another user, one that others may enter, and a link are refused. Sockets of processes that were killed
// are removed by whoever notices. A ticket has a socket's whole path, so processes with other folders meet. Any thread.
#pragma once

#include <sys/types.h>

#include <string>

#include "commpool/status.h"
#include "src/library/base/kept_file.h"
#include "src/library/base/socket.h"

namespace commpool::internal {

// A socket that listens; its file goes with it, also at exit().
class ShareListener {
 public:
  // Makes the folder, mode 0700, and a socket in it. kFailedPrecondition for a folder that others may enter, and for
  // one that cannot be made.
  static Result<ShareListener> Open(const std::string& folder);
  // In the folder `chosen`, if there is one; else in `runtime_directory`/commpool, if this user may make it; else in
  // /tmp/commpool-USER.
  static Result<ShareListener> OpenIn(const std::string& chosen, const std::string& runtime_directory);

  bool valid() const { return socket_.valid(); }
  const std::string& path() const { return file_.path(); }
  int descriptor() const { return socket_.get(); }

 private:
  PrivateDescriptor socket_;
  OwnedFile file_;
};

// The process at the other end; kRemoteFailure unless it has this user.
Result<pid_t> CheckPeer(int socket);

// Removes the file of a socket whose process was killed. Returns false where somebody listens there.
bool RemoveIfDead(const std::string& path);

// Connects. kRemoteFailure where nobody listens there any more.
// kDeadlineExceeded where the owner does not take callers.
Result<PrivateDescriptor> ConnectToOwner(const std::string& path, Deadline deadline);

}  // namespace commpool::internal
