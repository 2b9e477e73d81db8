#include "src/emulator/cuda/user_objects.h"

#include <thread>
#include <utility>

namespace commpool::internal::emulator {

namespace {

thread_local bool in_callback = false;

}  // namespace

CUuserObject UserObjects::Create(void* pointer, CUhostFn destroy, uint64_t references) {
  auto object = std::make_unique<CUuserObject_st>(CUuserObject_st{pointer, destroy, references, {}});
  const CUuserObject handle = object.get();
  objects_.emplace(handle, std::move(object));
  return handle;
}

bool UserObjects::Release(CUuserObject object, uint64_t count) {
  if (object->references < count) return false;
  object->references -= count;
  if (object->references != 0) return true;
  ended_.push_back(*object);
  objects_.erase(object);
  if (!std::exchange(runs_, true)) std::thread([this] { RunCallbacks(); }).detach();
  more_ended_.notify_one();
  return true;
}

void UserObjects::RunCallbacks() {
  in_callback = true;
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    more_ended_.wait(lock, [&] { return !ended_.empty(); });
    const CUuserObject_st object = ended_.front();
    ended_.pop_front();
    races_.HostWaitedFor(object.work);
    lock.unlock();
    object.destroy(object.pointer);
    lock.lock();
  }
}

bool UserObjects::InCallback() { return in_callback; }

std::vector<std::string> UserObjects::Describe() const {
  std::vector<std::string> lines;
  for (const auto& [handle, object] : objects_) {
    lines.push_back("user object, " + std::to_string(object->references) + " references");
  }
  return lines;
}

ObjectReferences::ObjectReferences(const ObjectReferences& other) : objects_(other.objects_), counts_(other.counts_) {
  for (const auto& [object, count] : counts_) objects_.Retain(object, count);
}

ObjectReferences::~ObjectReferences() {
  for (const auto& [object, count] : counts_) {
    if (objects_.IsObject(object)) objects_.Release(object, count);
  }
}

void ObjectReferences::NoteWork(const Clock& clock) {
  for (const auto& [object, count] : counts_) {
    if (objects_.IsObject(object)) object->work.Join(clock);
  }
}

bool ObjectReferences::Release(CUuserObject object, uint64_t count) {
  const auto found = counts_.find(object);
  if (found == counts_.end() || found->second < count) return false;
  found->second -= count;
  if (found->second == 0) counts_.erase(found);
  return objects_.Release(object, count);
}

}  // namespace commpool::internal::emulator
