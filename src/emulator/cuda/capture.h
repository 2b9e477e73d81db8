// Stream capture: which streams capture, what they have captured, and which calls that forbids.
//
// The answers are those of an H200 with driver 580. A call that breaks a rule invalidates its captures, and the program
// must still end them. The machine's lock guards everything here.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "src/emulator/cuda/graph.h"
#include "src/emulator/cuda/scheduler.h"

namespace commpool::internal::emulator {

class Machine;

// One capture, from its beginning to its end.
struct StreamCapture {
  // The nodes that the next node of a stream depends on. It has edges too, for calls that ask for them.
  struct Tail {
    std::vector<CUgraphNode> nodes;
    std::vector<CUgraphEdgeData> edges;
    void Add(const std::vector<CUgraphNode>& more);
  };

  uint64_t id = 0;
  CUstream_st* origin = nullptr;
  std::thread::id thread;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  bool invalidated = false;
  bool ended = false;  // events may still refer to it
  std::unique_ptr<CUgraph_st> graph;
  std::map<CUstream_st*, Tail> tails;  // the origin and every stream that joined
  Tail departed;                       // from joined streams that the program has destroyed

  // Says whether all work of the other streams comes before the origin's end.
  bool IsJoined() const;
};

// Owns the captures of this process that have not ended. The machine holds it; functions of streams, events and graphs
// ask it.
class Captures {
 public:
  // Returns the capture that a stream belongs to; null if it captures nothing.
  StreamCapture* Of(const CUstream_st* stream) const;

  // Carry out the API functions of these names. The caller has checked the arguments.
  CUresult Begin(CUstream_st* stream, CUstreamCaptureMode mode, UserObjects& objects);
  CUresult End(CUstream_st* stream, std::unique_ptr<CUgraph_st>* graph);
  CUresult Record(CUevent_st* event, CUstream_st* stream);
  // REQUIRES: the stream captures, or IsCaptured(event). `legacy`: this is the legacy stream.
  CUresult Wait(CUstream_st* stream, CUevent_st* event, bool legacy);
  // Adds an operation as a node.
  CUresult AddNode(CUstream_st* stream, Operation operation);

  bool IsCaptured(const CUevent_st* event) const { return records_.contains(event); }
  // Call it when the event was recorded again outside of any capture, or destroyed.
  void Forget(const CUevent_st* event) { records_.erase(event); }
  // Call it when the program destroys the stream.
  void Forget(CUstream_st* stream);

  // Return the error, if any, when the calling thread...
  CUresult RefuseUnsafe();                      // ...waits, or changes what a replay would not change
  CUresult RefuseCaptured(const CUstream_st*);  // ...asks for the progress of a stream
  CUresult RefuseCaptured(const CUevent_st*);   // ...or of an event
  CUresult RefuseDevice(int device);            // ...waits for all streams of a device
  CUresult RefuseImplicit(int device);          // ...uses the legacy stream of a device
  bool HasBlockingCapture(int device) const;    // the same question, without a consequence

  bool IsMaking(CUgraph graph) const;

  void Announce(CUstream_st* stream, bool announced);
  bool IsAnnounced(const CUstream_st* stream) const;

  const char* UserOf(CUdeviceptr address, uint64_t bytes) const;
  std::vector<std::string> Describe() const;

 private:
  struct CapturedRecord {
    std::shared_ptr<StreamCapture> capture;
    std::vector<CUgraphNode> nodes;
  };

  std::shared_ptr<StreamCapture> Shared(const CUstream_st* stream) const;
  void Close(StreamCapture& capture);

  std::vector<std::shared_ptr<StreamCapture>> live_;
  std::map<const CUevent_st*, CapturedRecord> records_;
  std::map<const CUstream_st*, int> announced_;
  uint64_t next_id_ = 1;
};

// The capture mode of the calling thread (cuThreadExchangeStreamCaptureMode).
CUstreamCaptureMode& ThreadCaptureMode();

// Says whether a stream (from Scheduler::Resolve) captures although nobody told a pool. commpool's pools serve only
// captures that are announced.
bool IsUnannouncedCapture(const Machine& machine, const CUstream_st* stream);

}  // namespace commpool::internal::emulator
