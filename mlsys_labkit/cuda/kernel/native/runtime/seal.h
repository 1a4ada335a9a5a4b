// seal.h: the rights that a worker keeps once it runs graded kernels without hooks.
#pragma once

namespace lk {

// Before the first launch, when the pool's threads are there. From then on this process computes in memory that it has, waits,
// answers and ends; it opens no file, so that another module takes another process. Throws std::runtime_error.
void seal_process();

}  // namespace lk
