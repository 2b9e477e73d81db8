#include "src/library/sharing/share_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <ctime>
#include <memory>
#include <optional>

#include "src/library/base/interruption.h"
#include "src/library/base/keyed_hash.h"
#include "src/library/base/printable.h"
#include "src/library/base/try.h"
#include "src/library/sharing/ticket.h"

namespace commpool::internal {

namespace {

constexpr int kNameBytes = 16;
constexpr size_t kMostPathBytes = sizeof(sockaddr_un::sun_path) - 1;

Status Failed(const std::string& action, const std::string& path, int error) {
  return SystemFailure(action + " " + Printable(path), error, StatusCode::kFailedPrecondition);
}

std::optional<sockaddr_un> AddressOf(const std::string& path) {
  sockaddr_un address = {};
  if (path.empty() || path.size() > kMostPathBytes) return std::nullopt;
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, path.size());
  return address;
}

// Connects at once; returns an errno, or 0.
int TryToConnect(const PrivateDescriptor& socket, const sockaddr_un& address) {
  if (!socket.valid()) return errno;
  return connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 ? 0 : errno;
}

Status MakeFolder(const std::string& folder) {
  if (mkdir(folder.c_str(), S_IRWXU) != 0 && errno != EEXIST) return Failed("making the folder", folder, errno);
  const FileDescriptor opened(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat about = {};
  if (!opened.valid() || fstat(opened.get(), &about) != 0) return Failed("opening the folder", folder, errno);
  if (about.st_uid == geteuid() && (about.st_mode & (S_IRWXG | S_IRWXO)) == 0) return Status();
  return FailedPrecondition("others may enter ", Printable(folder),
                            ", where tickets would lead them: it must belong to this user alone, "
                            "with mode 0700");
}

// Whether its process had time enough to listen.
bool IsOld(const std::string& path) {
  constexpr time_t kSeconds = 60;
  struct stat about = {};
  return stat(path.c_str(), &about) == 0 && time(nullptr) - about.st_ctime > kSeconds;
}

// Removes the sockets whose processes were killed.
void Sweep(const std::string& folder) {
  const std::unique_ptr<DIR, int (*)(DIR*)> list(opendir(folder.c_str()), closedir);
  while (const dirent* const entry = list == nullptr ? nullptr : readdir(list.get())) {
    const std::string path = folder + "/" + entry->d_name;
    if (entry->d_type == DT_SOCK && (entry->d_name[0] != '.' || IsOld(path))) RemoveIfDead(path);
  }
}

// Nothing where nothing is there.
std::optional<uid_t> OwnerOf(const std::string& path) {
  struct stat about = {};
  return lstat(path.c_str(), &about) == 0 ? std::optional(about.st_uid) : std::nullopt;
}

bool MayWrite(const std::string& path) { return faccessat(AT_FDCWD, path.c_str(), W_OK | X_OK, AT_EACCESS) == 0; }

// Whether this user has the folder in it, or may make it. In another user's, root could make one that locks that user
// out.
bool MayHold(const std::string& runtime_directory, const std::string& folder) {
  if (runtime_directory.empty() || runtime_directory[0] != '/') return false;
  if (folder.size() + 2 + kNameBytes > kMostPathBytes || OwnerOf(runtime_directory) != geteuid()) return false;
  const std::optional<uid_t> owner = OwnerOf(folder);
  return owner ? owner == geteuid() && MayWrite(folder) : MayWrite(runtime_directory);
}

}  // namespace

Result<ShareListener> ShareListener::OpenIn(const std::string& chosen, const std::string& runtime_directory) {
  if (!chosen.empty() && chosen[0] != '/') {
    return FailedPrecondition("COMMPOOL_SOCKETS is \"", Printable(chosen), "\": name a whole path");
  }
  const auto refused = [](const Result<ShareListener>& opened) {
    return opened.status().code() == StatusCode::kFailedPrecondition;
  };
  const std::string usual = runtime_directory + "/commpool";
  const bool usual_serves = chosen.empty() && MayHold(runtime_directory, usual);
  const std::string fallback = "/tmp/commpool-" + std::to_string(geteuid());
  Result<ShareListener> opened = Open(usual_serves ? usual : chosen.empty() ? fallback : chosen);
  if (usual_serves && !opened.ok() && !refused(opened)) opened = Open(fallback);  // its disk is full
  if (!refused(opened)) return opened;
  return FailedPrecondition(opened.status().message(),
                            ". COMMPOOL_SOCKETS may name another folder for the sockets of shared pools");
}

Result<ShareListener> ShareListener::Open(const std::string& folder) {
  COMMPOOL_TRY(MakeFolder(folder));
  Sweep(folder);
  const HashKey random = COMMPOOL_TRY(RandomKey());
  const std::string name = Hexadecimal(random[0], kNameBytes);
  const std::string path = folder + "/" + name;
  // Until it listens it looks like the socket of a killed process, so it has a dot in front of its name.
  const std::string unready = folder + "/." + name;
  const std::optional<sockaddr_un> address = AddressOf(unready);
  if (!address) return Failed("listening at", path, ENAMETOOLONG);
  ShareListener listener;
  listener.socket_ = PrivateDescriptor::OpenSocket(PrivateDescriptor::Kind::kLocalMessages);
  const int descriptor = listener.socket_.get();
  if (descriptor < 0 || bind(descriptor, reinterpret_cast<const sockaddr*>(&*address), sizeof(*address)) != 0) {
    return Failed("listening at", path, errno);
  }
  listener.file_ = OwnedFile(unready);
  if (listen(descriptor, SOMAXCONN) != 0 || rename(unready.c_str(), path.c_str()) != 0) {
    return Failed("listening at", path, errno);
  }
  listener.file_ = OwnedFile(path);
  return listener;
}

bool RemoveIfDead(const std::string& path) {
  const std::optional<sockaddr_un> address = AddressOf(path);
  if (!address) return true;
  const int error = TryToConnect(PrivateDescriptor::OpenSocket(PrivateDescriptor::Kind::kLocalMessages), *address);
  if (error == ECONNREFUSED) unlink(path.c_str());
  return error != 0 && error != EAGAIN;
}

Result<pid_t> CheckPeer(int socket) {
  ucred peer = {};
  socklen_t size = sizeof(peer);
  const int asked = getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size);
  if (asked != 0) return SystemFailure("who the other process is");
  if (peer.uid == geteuid()) return peer.pid;
  return RemoteFailure("process ", peer.pid, " belongs to user ", peer.uid,
                       ", and pools are shared with processes of user ", geteuid(), " alone");
}

Result<PrivateDescriptor> ConnectToOwner(const std::string& path, Deadline deadline) {
  const std::optional<sockaddr_un> address = AddressOf(path);
  if (!address) return Failed("connecting to", path, ENAMETOOLONG);
  WaitSlices slices(deadline);
  while (true) {
    PrivateDescriptor socket = PrivateDescriptor::OpenSocket(PrivateDescriptor::Kind::kLocalMessages);
    const int error = TryToConnect(socket, *address);
    if (error == 0) return socket;
    if (error == ECONNREFUSED || error == ENOENT) return RemoteFailure("its process has ended");
    if (error == EACCES || error == EPERM) {
      return RemoteFailure("its process belongs to another user, who keeps ", path, " closed");
    }
    if (error != EAGAIN && error != EINTR) return Failed("connecting to", path, error);
    if (slices.Over()) return DeadlineExceeded("its process does not answer at ", path);
    poll(nullptr, 0, 1);  // its queue of callers is full
  }
}

}  // namespace commpool::internal
