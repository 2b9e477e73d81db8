"""The cases of group_test on each rank."""

import torch
import torch.distributed as dist

from routed import commpool, filled_in

from on_emulator import reports
from rank_cases import end, leave, refusal, run_cases


def sleeps_and_wakes(group):
    pool = commpool.Pool(symmetric_across=group, reserve="2MiB")
    tensor = filled_in(pool, 1.0, 1000, torch.float32)
    dist.all_reduce(tensor)
    pool.sleep(keep="host", graphs="no_collectives")
    commpool.sleep_group(group, deadline_ms=20000)
    asleep = commpool.group_memory(group)
    commpool.wake_group()
    pool.wake()
    dist.all_reduce(tensor)
    said = [asleep.asleep, asleep.sleeping_bytes > 0, commpool.group_memory().asleep, tensor[0].item(), reports()]
    del tensor
    end(pool)
    return said


def of_an_older_nccl(group):
    return refusal(lambda: commpool.sleep_group(group), commpool.NotSupported)[1]


run_cases([sleeps_and_wakes, of_an_older_nccl])
leave()
