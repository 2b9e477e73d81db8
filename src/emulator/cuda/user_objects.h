// User objects: their callbacks tell a program when the last graph that needs one is gone.
//
// They count references. When the last one goes, a thread of the emulator runs the callback some time later; the
// callback may not call CUDA. The machine's lock guards everything here.
#pragma once

#include <cuda.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "src/emulator/cuda/race_checker.h"

struct CUuserObject_st {
  void* pointer = nullptr;
  CUhostFn destroy = nullptr;
  uint64_t references = 0;
  commpool::internal::emulator::Clock work = {};  // that graphs did: the callback comes behind it
};

namespace commpool::internal::emulator {

// Owns the process's user objects and the thread of their callbacks. The machine holds it; api_graph.cc calls it.
class UserObjects {
 public:
  // `mutex` and `races` are the machine's.
  UserObjects(std::mutex& mutex, RaceChecker& races) : mutex_(mutex), races_(races) {}

  CUuserObject Create(void* pointer, CUhostFn destroy, uint64_t references);
  bool IsObject(CUuserObject object) const { return objects_.contains(object); }
  void Retain(CUuserObject object, uint64_t count) { object->references += count; }
  // Returns false, and releases nothing, if there are fewer references.
  bool Release(CUuserObject object, uint64_t count);

  // Says whether the calling thread runs a callback of a user object.
  static bool InCallback();

  std::vector<std::string> Describe() const;

 private:
  void RunCallbacks();

  std::mutex& mutex_;
  RaceChecker& races_;
  std::map<CUuserObject, std::unique_ptr<CUuserObject_st>> objects_;
  std::deque<CUuserObject_st> ended_;
  std::condition_variable more_ended_;
  bool runs_ = false;  // the thread runs until the process ends
};

// Owns the references of one graph. A copy has references of its own. Graphs and executable graphs hold it.
class ObjectReferences {
 public:
  explicit ObjectReferences(UserObjects& objects) : objects_(objects) {}
  ObjectReferences(const ObjectReferences& other);
  ObjectReferences& operator=(const ObjectReferences&) = delete;
  ~ObjectReferences();

  // Takes over references of the caller.
  void Adopt(CUuserObject object, uint64_t count) { counts_[object] += count; }
  // Returns false, and releases nothing, if there are fewer.
  bool Release(CUuserObject object, uint64_t count);
  // A launch has ended that needed them.
  void NoteWork(const Clock& clock);

 private:
  UserObjects& objects_;
  std::map<CUuserObject, uint64_t> counts_;
};

}  // namespace commpool::internal::emulator
