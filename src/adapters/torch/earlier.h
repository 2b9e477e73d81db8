// What the program told PyTorch's allocator before the router was there to hear it: which devices reach each other's
// memory, what fraction of a device may be taken, that history is recorded. PyTorch says each once.
#ifndef COMMPOOL_SRC_ADAPTERS_TORCH_EARLIER_H_
#define COMMPOOL_SRC_ADAPTERS_TORCH_EARLIER_H_

namespace commpool::torch_adapter {

// Once the router is in place, from when on it hears of changes.
void TakeOver();

// Of a device with a pool that has just become known: its fraction, which PyTorch may have of its configuration.
void TakeOverFraction(int device);

// Holds our pools of the device to the fraction of its memory. Throws where the library refuses.
void LimitPools(int device, double fraction);

// PyTorch records history of its own blocks, and of ours nobody does.
bool MissesHistory();

// While true, what this thread asks PyTorch to record is for our pools alone, and the call fails where PyTorch would
// begin anew: its own goes on as it was set.
bool& RecordsOursOnly();

}  // namespace commpool::torch_adapter

#endif  // COMMPOOL_SRC_ADAPTERS_TORCH_EARLIER_H_
