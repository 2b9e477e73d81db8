// Graphs: captured operations with the order between them, and their replay.
//
// A node keeps an operation as it was captured; each replay submits a copy, so what it touches is checked each time.
// Captured nodes never change, so an executable graph shares them with the graph that it was made from, and outlives
// it. Guarded by the machine's lock.
#ifndef COMMPOOL_SRC_EMULATOR_CUDA_GRAPH_H_
#define COMMPOOL_SRC_EMULATOR_CUDA_GRAPH_H_

#include <cuda.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "src/emulator/cuda/operation.h"
#include "src/emulator/cuda/scheduler.h"
#include "src/emulator/cuda/user_objects.h"

struct CUgraphNode_st {
  commpool::internal::emulator::Operation operation;
  int device = 0;
  std::vector<CUgraphNode_st*> dependencies;
};

namespace commpool::internal::emulator {

// Dependencies come before what depends on them.
using Nodes = std::vector<std::shared_ptr<CUgraphNode_st>>;

// The name of an operation among the nodes that touches the range; null where there is none.
const char* UserAmong(const Nodes& nodes, CUdeviceptr address, uint64_t bytes);

}  // namespace commpool::internal::emulator

struct CUgraph_st {
  explicit CUgraph_st(commpool::internal::emulator::UserObjects& user_objects) : objects(user_objects) {}

  commpool::internal::emulator::Nodes nodes;
  commpool::internal::emulator::ObjectReferences objects;
};

struct CUgraphExec_st {
  commpool::internal::emulator::Nodes nodes;
  // Shared with launches that have not ended, so that the objects outlive an executable graph destroyed meanwhile.
  std::shared_ptr<const commpool::internal::emulator::ObjectReferences> objects;
  std::shared_ptr<commpool::internal::emulator::Operation> last;  // the end of its last launch
};

namespace commpool::internal::emulator {

class Machine;

class Graphs {
 public:
  CUgraph Add(std::unique_ptr<CUgraph_st> graph);
  bool IsGraph(CUgraph graph) const { return graphs_.contains(graph); }
  bool Destroy(CUgraph graph) { return graphs_.erase(graph) != 0; }

  CUgraphExec Instantiate(const CUgraph_st& graph);
  bool IsExecutable(CUgraphExec executable) const { return executables_.contains(executable); }
  // What it has launched runs to its end.
  bool Destroy(CUgraphExec executable) { return executables_.erase(executable) != 0; }

  // Submits every node: behind what the stream holds and the executable's last launch, and before what the stream gets
  // next. Nodes without an order between them run in any.
  static void Launch(Machine& machine, CUgraphExec_st& executable, CUstream_st* stream);

  const char* UserOf(CUdeviceptr address, uint64_t bytes) const;
  std::vector<std::string> Describe() const;

 private:
  std::map<CUgraph, std::unique_ptr<CUgraph_st>> graphs_;
  std::map<CUgraphExec, std::unique_ptr<CUgraphExec_st>> executables_;
};

}  // namespace commpool::internal::emulator

#endif  // COMMPOOL_SRC_EMULATOR_CUDA_GRAPH_H_
