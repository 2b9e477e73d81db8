#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <memory>

#include "src/library/driver/loader.h"
#include "tests/c_api/c_abi.h"
#include "tests/driver/emulator_fixture.h"
#include "tests/sharing/sharing_process.h"

namespace commpool::internal::testing {

namespace {

constexpr size_t kBytes = 4096;

const CudaDriver& Cuda() { return SharedDriver()->cuda; }

void* Pointer(const Order& order) { return reinterpret_cast<void*>(order.pointer); }

Outcome Of(commpool_status status) { return {status, 0, 0, status == COMMPOOL_OK ? "" : commpool_last_error()}; }

// By reference, for the call that answers `status` writes the pointer, or the number.
Outcome Of(commpool_status status, void* const& pointer) {
  Outcome outcome = Of(status);
  outcome.pointer = reinterpret_cast<uint64_t>(pointer);
  return outcome;
}

Outcome OfNumber(commpool_status status, const uint64_t& number) {
  Outcome outcome = Of(status);
  outcome.number = number;
  return outcome;
}

Outcome OfText(commpool_status status, const char* text) {
  return status == COMMPOOL_OK ? Outcome{status, 0, 0, text} : Of(status);
}

Outcome OfCuda(CUresult result) {
  return {result == CUDA_SUCCESS ? COMMPOOL_OK : COMMPOOL_DRIVER_ERROR, 0, 0, "CUresult " + std::to_string(result)};
}

Outcome RegisterAndBack(uint64_t pointer) {
  const NcclLibrary& nccl = SharedDriver()->nccl;
  ncclUniqueId id;
  ncclComm_t communicator = nullptr;
  void* handle = nullptr;
  ncclResult_t result = nccl.ncclGetUniqueId(&id);
  if (result == ncclSuccess) result = nccl.ncclCommInitRank(&communicator, 1, id, 0);
  if (result == ncclSuccess) {
    result = nccl.ncclCommRegister(communicator, reinterpret_cast<void*>(pointer), kBytes, &handle);
  }
  if (result == ncclSuccess) result = nccl.ncclCommDeregister(communicator, handle);
  if (communicator != nullptr) nccl.ncclCommDestroy(communicator);
  return {result == ncclSuccess && handle != nullptr ? COMMPOOL_OK : COMMPOOL_COMMUNICATOR_ERROR, 0, 0, ""};
}

uint64_t CountDescriptors() {
  uint64_t count = 0;
  const std::unique_ptr<DIR, int (*)(DIR*)> list(opendir("/proc/self/fd"), closedir);
  while (readdir(list.get()) != nullptr) ++count;
  return count - 3;  // ".", ".." and the list's own
}

}  // namespace

SharingWork::SharingWork() {
  CUcontext context = nullptr;
  Cuda().cuDevicePrimaryCtxRetain(&context, 0);
  Cuda().cuCtxSetCurrent(context);
  Cuda().cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING);
}

SharingWork::~SharingWork() {
  for (const commpool_import import : opened_) static_cast<void>(commpool_import_close(import));
}

Outcome SharingWork::Carry(const Order& order) {
  if (order.what <= Do::kEndUpdate) return WithPool(order);
  if (order.what <= Do::kClose || order.what == Do::kImport) return WithImport(order);
  if (order.what <= Do::kFreeStream) return WithStream(order);
  if (order.what <= Do::kDestroyPool || order.what == Do::kPendingBlocks) return WithPool(order);
  return WithDescriptors(order);
}

Outcome SharingWork::WithPool(const Order& order) {
  char ticket[COMMPOOL_TICKET_BYTES];
  void* pointer = nullptr;
  uint64_t released = 0;
  switch (order.what) {
    case Do::kMakePool: {
      auto options = Named("shared");
      options.backing = static_cast<commpool_backing>(order.number % kOnDevice1);
      options.mode = static_cast<commpool_mode>(order.pointer);
      options.device = order.number >= kOnDevice1 ? 1 : 0;
      options.deadline_ms = order.text.empty() ? options.deadline_ms : std::stoull(order.text);
      return Of(commpool_pool_create(&options, &pool_));
    }
    case Do::kAllocate:
      return Of(commpool_pool_allocate(pool_, order.number, stream_, &pointer), pointer);
    case Do::kFree:
      return Of(commpool_free(Pointer(order)));
    case Do::kSharePool:
      return OfText(commpool_pool_share(pool_, static_cast<commpool_imports>(order.number), ticket, sizeof(ticket)),
                    ticket);
    case Do::kShareBlock:
      return OfText(
          commpool_block_share(Pointer(order), static_cast<commpool_writes>(order.number), ticket, sizeof(ticket)),
          ticket);
    case Do::kBeginUpdate:
      return Of(commpool_update_begin(Pointer(order)));
    case Do::kEndUpdate:
      return Of(commpool_update_end(Pointer(order), stream_));
    case Do::kTrim:
      return OfNumber(commpool_pool_trim(pool_, 0, &released), released);
    case Do::kSleep:
      return Of(commpool_pool_sleep(pool_, COMMPOOL_KEEP_HOST, COMMPOOL_GRAPHS_NO_COLLECTIVES));
    case Do::kWake:
      return Of(commpool_pool_wake(pool_, COMMPOOL_GRAPHS_REFUSED));
    case Do::kEndPool:
      return Of(commpool_pool_close(pool_));
    case Do::kDestroyPool:
      return Of(commpool_pool_destroy(pool_));
    default: {
      std::vector<commpool_block> blocks(64);
      size_t count = 0;
      Outcome outcome = Of(commpool_pool_blocks(pool_, blocks.data(), sizeof(commpool_block), blocks.size(), &count));
      for (size_t place = 0; place < count; ++place) {
        if (blocks.at(place).state == COMMPOOL_BLOCK_PENDING) ++outcome.number;
      }
      auto statistics = Initialised(commpool_statistics_init);
      if (outcome.status == COMMPOOL_OK)
        outcome.status = commpool_pool_statistics(pool_, COMMPOOL_PEAKS_STAY, &statistics);
      outcome.pointer = statistics.allocated_bytes.current;
      return outcome;
    }
  }
}

Outcome SharingWork::WithImport(const Order& order) {
  void* pointer = nullptr;
  switch (order.what) {
    case Do::kOpen:
    case Do::kOpenOnDevice: {
      auto options = Initialised(commpool_import_options_init);
      if (order.what == Do::kOpen) options.addresses = static_cast<commpool_addresses>(order.number);
      if (order.what == Do::kOpenOnDevice) options.device = static_cast<int>(order.number);
      if (order.pointer != 0) options.deadline_ms = order.pointer;
      const commpool_status status = commpool_import_open(order.text.c_str(), &options, &import_);
      opened_.push_back(import_);
      return OfNumber(status, import_);
    }
    case Do::kImport:
      import_ = order.number;
      return {};
    case Do::kBlock:
      return Of(commpool_import_block(import_, order.text.c_str(), &pointer, nullptr), pointer);
    case Do::kAddress:
      return Of(commpool_import_address(import_, Pointer(order), &pointer), pointer);
    case Do::kBeginRead:
      return Of(commpool_read_begin(import_, Pointer(order)));
    case Do::kEndRead:
      return Of(commpool_read_end(import_, Pointer(order), stream_));
    case Do::kRelease:
      return Of(commpool_import_release(import_, Pointer(order), order.number == 0 ? stream_ : nullptr));
    default:
      return Of(commpool_import_close(import_));
  }
}

Outcome SharingWork::WithStream(const Order& order) {
  switch (order.what) {
    case Do::kFill:
      return OfCuda(Cuda().cuMemsetD8Async(order.pointer, static_cast<unsigned char>(order.number), kBytes, stream_));
    case Do::kFirstByte: {
      unsigned char byte = 0;
      CUresult result = Cuda().cuMemcpyDtoHAsync(&byte, order.pointer, 1, stream_);
      if (result == CUDA_SUCCESS) result = Cuda().cuStreamSynchronize(stream_);
      Outcome outcome = OfCuda(result);
      outcome.number = byte;
      return outcome;
    }
    case Do::kRegister:
      return RegisterAndBack(order.pointer);
    case Do::kHoldStream: {
      held_ = std::promise<void>();
      auto* const until = new std::shared_future<void>(held_.get_future().share());
      return OfCuda(Cuda().cuLaunchHostFunc(
          stream_,
          [](void* future) {
            const std::unique_ptr<std::shared_future<void>> own(static_cast<std::shared_future<void>*>(future));
            own->wait();
          },
          until));
    }
    default:
      held_.set_value();
      return OfCuda(Cuda().cuStreamSynchronize(stream_));
  }
}

Outcome SharingWork::WithDescriptors(const Order& order) {
  switch (order.what) {
    case Do::kDescriptors:
      return OfNumber(COMMPOOL_OK, CountDescriptors());
    case Do::kTakeDescriptors:
      while (true) {
        FileDescriptor taken(fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0));
        if (!taken.valid()) break;
        taken_.push_back(std::move(taken));
      }
      for (uint64_t left = order.number; left > 0; --left) taken_.pop_back();
      return {};
    case Do::kGiveDescriptors:
      taken_.clear();
      return {};
    case Do::kCalls:
      return OfNumber(COMMPOOL_OK, CallCount(order.text.c_str()));
    default: {
      const pid_t child = fork();
      if (child == 0) {
        while (true) pause();
      }
      return OfNumber(COMMPOOL_OK, static_cast<uint64_t>(child));
    }
  }
}

}  // namespace commpool::internal::testing
