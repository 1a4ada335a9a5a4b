// random.h: Thrust's generators by their names in the standard library; the numbers are not a GPU's.
#pragma once

#include <random>

namespace thrust {

struct default_random_engine : std::minstd_rand {
    using std::minstd_rand::minstd_rand;
};
using std::minstd_rand;
template <class T = float>
using uniform_real_distribution = std::uniform_real_distribution<T>;
template <class T = int>
using uniform_int_distribution = std::uniform_int_distribution<T>;
namespace random {
using std::normal_distribution;
using thrust::default_random_engine;
using thrust::uniform_int_distribution;
using thrust::uniform_real_distribution;
namespace experimental {
using std::normal_distribution;
}
}  // namespace random

}  // namespace thrust
