// What the program told PyTorch's allocator before the router was there to hear it: which devices reach each other's
// memory, what fraction of a device may be taken, that history is recorded. PyTorch says each once.
#ifndef COMMPOOL_SRC_ADAPTERS_TORCH_EARLIER_H_
#define COMMPOOL_SRC_ADAPTERS_TORCH_EARLIER_H_

namespace commpool::torch_adapter {

// Call it once the router is in place: from then on the router hears of changes.
void TakeOver();

// For a device whose pool has just become known: its fraction, which PyTorch may have from its configuration.
void TakeOverFraction(int device);

// Holds our pools of the device to the fraction of its memory. Throws where the library refuses.
void LimitPools(int device, double fraction);

}  // namespace commpool::torch_adapter

#endif  // COMMPOOL_SRC_ADAPTERS_TORCH_EARLIER_H_
