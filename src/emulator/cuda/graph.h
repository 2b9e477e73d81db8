// Graphs: captured operations, the order between them, and their replay.
//
// A node keeps an operation as it was captured. Each replay submits a copy, so the emulator checks its ranges each
// time. Captured nodes never change, so an executable graph shares them with its graph, and outlives it. The machine's
// lock guards everything here.
#pragma once

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

// A node comes after the nodes that it depends on.
using Nodes = std::vector<std::shared_ptr<CUgraphNode_st>>;

// Returns the name of an operation among the nodes that touches the range; null if none does.
const char* UserAmong(const Nodes& nodes, CUdeviceptr address, uint64_t bytes);

}  // namespace commpool::internal::emulator

struct CUgraph_st {
  explicit CUgraph_st(commpool::internal::emulator::UserObjects& user_objects) : objects(user_objects) {}

  commpool::internal::emulator::Nodes nodes;
  commpool::internal::emulator::ObjectReferences objects;
};

struct CUgraphExec_st {
  commpool::internal::emulator::Nodes nodes;
  // Launches that have not ended share it, so the objects outlive an executable graph that the program destroys early.
  std::shared_ptr<commpool::internal::emulator::ObjectReferences> objects;
  std::shared_ptr<commpool::internal::emulator::Operation> last;  // the end of its last launch
};

namespace commpool::internal::emulator {

class Machine;

// Owns the process's graphs and executable graphs. The machine holds it; api_graph.cc and the end of a capture call it.
class Graphs {
 public:
  CUgraph Add(std::unique_ptr<CUgraph_st> graph);
  bool IsGraph(CUgraph graph) const { return graphs_.contains(graph); }
  bool Destroy(CUgraph graph) { return graphs_.erase(graph) != 0; }

  CUgraphExec Instantiate(const CUgraph_st& graph);
  bool IsExecutable(CUgraphExec executable) const { return executables_.contains(executable); }
  // Launches of the graph still run to their end.
  bool Destroy(CUgraphExec executable) { return executables_.erase(executable) != 0; }

  // Submits every node: after the work of the stream and the executable's last launch, and before later work of the
  // stream. Nodes without an order between them run in any order.
  static void Launch(Machine& machine, CUgraphExec_st& executable, CUstream_st* stream);

  bool HasNode(CUgraphNode node) const;
  const char* UserOf(CUdeviceptr address, uint64_t bytes) const;
  std::vector<std::string> Describe() const;

 private:
  std::map<CUgraph, std::unique_ptr<CUgraph_st>> graphs_;
  std::map<CUgraphExec, std::unique_ptr<CUgraphExec_st>> executables_;
};

}  // namespace commpool::internal::emulator
