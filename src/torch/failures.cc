#include "src/torch/failures.h"

#include <c10/util/Exception.h>

#include <array>
#include <atomic>
#include <exception>
#include <mutex>
#include <sstream>
#include <utility>
#include <vector>

#include "src/torch/commpool_calls.h"
#include "src/torch/history.h"
#include "src/torch/known_pools.h"
#include "src/torch/native.h"

namespace torch {

// PyTorch has this class in a header that needs Python's. Where C++ returns to Python, PyTorch raises the class that
// `python_type` returns.
struct PyTorchError : public std::exception {
  explicit PyTorchError(std::string sentence) : msg(std::move(sentence)) {}
  virtual struct _object* python_type() = 0;
  const char* what() const noexcept override { return msg.c_str(); }
  std::string msg;
};

}  // namespace torch

namespace commpool::torch_adapter {
namespace {

constexpr uint64_t kExabyte = uint64_t{1} << 60;

using Observer = c10::cuda::CUDACachingAllocator::OutOfMemoryObserver;

struct Observers {
  std::mutex mutex;
  std::vector<Observer> all;
};

constinit Forever<Observers> of_out_of_memory;

constinit std::array<std::atomic<struct _object*>, COMMPOOL_NOT_CAUGHT> python_classes = {};

struct Failure final : torch::PyTorchError {
  Failure(std::string sentence, struct _object* python_class)
      : PyTorchError(std::move(sentence)), python_class(python_class) {}
  struct _object* python_type() override {
    return python_class;
  }

  struct _object* const python_class;
};

[[noreturn]] void Throw(commpool_status status, std::string sentence) {
  const auto place = static_cast<size_t>(status);
  struct _object* const python_class =
      place < python_classes.size() ? python_classes[place].load(std::memory_order_relaxed) : nullptr;
  TORCH_CHECK(python_class != nullptr, sentence);
  throw Failure(std::move(sentence), python_class);
}

// Writes a size as PyTorch does.
std::string Bytes(uint64_t bytes) {
  constexpr std::array kUnits = {"KiB", "MiB", "GiB"};
  std::ostringstream text;
  text.precision(2);
  if (bytes <= 1024) {
    text << bytes << " bytes";
  } else {
    size_t unit = 0;
    double value = static_cast<double>(bytes) / 1024;
    for (; value > 1024 && unit + 1 < kUnits.size(); ++unit) value /= 1024;
    text << std::fixed << value << " " << kUnits[unit];
  }
  return text.str();
}

std::string NativeTable(int device) {
  const auto stats = Native()->getDeviceStats(static_cast<c10::DeviceIndex>(device));
  const auto& allocated = stats.allocated_bytes[0];
  const auto& reserved = stats.reserved_bytes[0];
  return "PyTorch's own allocator has " + Bytes(static_cast<uint64_t>(reserved.current)) + " reserved, " +
         Bytes(static_cast<uint64_t>(allocated.current)) + " of it allocated.";
}

// Adds what Python knows to a sentence: where the program made the call that it names, or what a user's function
// raised.
std::string Explained(commpool_pool pool, const std::string& sentence) {
  const commpool_torch_explain explainer = call_explainer.load(std::memory_order_relaxed);
  if (explainer == nullptr) return sentence;
  char text[1024] = "";
  explainer(pool, sentence.c_str(), text, sizeof(text));
  return text[0] == '\0' ? sentence : sentence + ". " + text;
}

// As the program named it. Each of a pool's settings says that name.
std::string NameOf(commpool_pool pool) {
  commpool_setting setting = {};
  size_t count = 0;
  const commpool_status status = Commpool().configuration(pool, &setting, sizeof(setting), 1, &count);
  return status == COMMPOOL_OK && setting.pool != nullptr ? setting.pool : "pool " + std::to_string(pool);
}

void TellObservers(const Request& request, const DeviceMemory& memory) {
  TorchHistory().OutOfMemory(request.device, request.bytes, memory.free);
  std::vector<Observer> observers;
  {
    const std::lock_guard lock(of_out_of_memory.object.mutex);
    observers = of_out_of_memory.object.all;
  }
  for (const Observer& observer : observers) observer(request.device, request.bytes, memory.total, memory.free);
}

}  // namespace

void ObserveOutOfMemory(const Observer& observer) {
  const std::lock_guard lock(of_out_of_memory.object.mutex);
  of_out_of_memory.object.all.push_back(observer);
}

void RaiseAs(int status, struct _object* python_class) {
  const auto place = static_cast<size_t>(status);
  if (place < python_classes.size()) python_classes[place].store(python_class, std::memory_order_relaxed);
}

std::string PoolTable(int device) {
  std::string table;
  for (const KnownPool& known : Pools().OfDevice(device)) {
    commpool_statistics held;
    if (!ReadStatistics(known.pool, &held)) continue;
    table += (table.empty() ? "commpool's pools on device " + std::to_string(device) + ": " : "; ") +
             NameOf(known.pool) + " has " + Bytes(held.reserved_bytes.current) + " reserved, " +
             Bytes(held.allocated_bytes.current) + " of it allocated";
  }
  return table.empty() ? table : table + ".";
}

void ThrowPinnedFailure(commpool_status status) {
  const std::string reason = std::string("commpool: ") + Commpool().last_error();
  TORCH_CHECK_WITH(OutOfMemoryError, status != COMMPOOL_OUT_OF_MEMORY && status != COMMPOOL_EXHAUSTED, reason);
  Throw(status, reason);
}

void ThrowFailure(commpool_status status, commpool_pool pool, const Request& request) {
  std::string reason = Commpool().last_error();  // copied, because the calls below may fail too
  // Python may know which line differs, or what its backing raised.
  if (status == COMMPOOL_DISAGREEMENT || status == COMMPOOL_OUT_OF_MEMORY) reason = Explained(pool, reason);
  if (status != COMMPOOL_OUT_OF_MEMORY && status != COMMPOOL_EXHAUSTED) Throw(status, "commpool: " + reason);
  // Such a size is a mistake. PyTorch then calls no observer and shows no table of memory.
  TORCH_CHECK_WITH(OutOfMemoryError, request.bytes < kExabyte,
                   "CUDA out of memory. Tried to allocate more than 1EB memory.");
  const DeviceMemory memory = MemoryOf(request.device);
  TellObservers(request, memory);
  // Programs look for the beginning of PyTorch's own message.
  TORCH_CHECK_WITH(OutOfMemoryError, false, "CUDA out of memory. Tried to allocate ", Bytes(request.bytes), ". GPU ",
                   request.device, " has a total capacity of ", Bytes(memory.total), " of which ", Bytes(memory.free),
                   " is free. It was asked of a commpool pool: ", reason, "\n", NativeTable(request.device));
}

}  // namespace commpool::torch_adapter
