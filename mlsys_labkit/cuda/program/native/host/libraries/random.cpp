// random.cpp: cuRAND's host calls by the standard library's generators.
#include "lk/host/random.h"

#include <random>

#include "library.h"

using namespace lk::host;

struct curandGenerator_st {
    std::mt19937_64 engine;
};

namespace {

template <class T, class Distribution>
curandStatus_t fill(curandGenerator_t generator, T* to, size_t count, Distribution distribution) {
    if (!generator) return CURAND_STATUS_NOT_INITIALIZED;
    return library_call(CURAND_STATUS_LAUNCH_FAILURE,
                        "cuRAND's host generators stand in with the standard library's: other numbers, the same distribution", [&] {
        if (!fits(to, count * sizeof(T))) return CURAND_STATUS_LAUNCH_FAILURE;
        for (size_t i = 0; i < count; ++i) to[i] = static_cast<T>(distribution(generator->engine));
        return CURAND_STATUS_SUCCESS;
    });
}

// In (0, 1], as cuRAND's: 0 is out, 1 is in.
template <class T>
auto unit_interval() {
    return [distribution = std::uniform_real_distribution<T>(0, 1)](std::mt19937_64& engine) mutable {
        return 1 - distribution(engine);
    };
}

}  // namespace

extern "C" {

curandStatus_t curandCreateGenerator(curandGenerator_t* generator, curandRngType_t type) {
    if (type >= CURAND_RNG_QUASI_DEFAULT) {
        journal().note_once("quasi-random numbers (Sobol's) are left out of cuRAND's stand-in; a GPU is needed");
        return CURAND_STATUS_TYPE_ERROR;
    }
    *generator = new curandGenerator_st;
    return CURAND_STATUS_SUCCESS;
}

curandStatus_t curandCreateGeneratorHost(curandGenerator_t* generator, curandRngType_t type) {
    return curandCreateGenerator(generator, type);
}

curandStatus_t curandDestroyGenerator(curandGenerator_t generator) {
    delete generator;
    return generator ? CURAND_STATUS_SUCCESS : CURAND_STATUS_NOT_INITIALIZED;
}

curandStatus_t curandSetPseudoRandomGeneratorSeed(curandGenerator_t generator, unsigned long long seed) {
    if (!generator) return CURAND_STATUS_NOT_INITIALIZED;
    generator->engine.seed(seed);
    return CURAND_STATUS_SUCCESS;
}

curandStatus_t curandSetGeneratorOffset(curandGenerator_t generator, unsigned long long offset) {
    if (!generator) return CURAND_STATUS_NOT_INITIALIZED;
    generator->engine.discard(offset);
    return CURAND_STATUS_SUCCESS;
}

curandStatus_t curandSetStream(curandGenerator_t, cudaStream_t) { return CURAND_STATUS_SUCCESS; }

curandStatus_t curandGenerate(curandGenerator_t generator, unsigned int* to, size_t count) {
    return fill(generator, to, count, [](std::mt19937_64& engine) { return engine() >> 32; });
}

curandStatus_t curandGenerateUniform(curandGenerator_t generator, float* to, size_t count) {
    return fill(generator, to, count, unit_interval<float>());
}

curandStatus_t curandGenerateUniformDouble(curandGenerator_t generator, double* to, size_t count) {
    return fill(generator, to, count, unit_interval<double>());
}

curandStatus_t curandGenerateNormal(curandGenerator_t generator, float* to, size_t count, float mean, float deviation) {
    return fill(generator, to, count, std::normal_distribution<float>(mean, deviation));
}

curandStatus_t curandGenerateNormalDouble(curandGenerator_t generator, double* to, size_t count, double mean,
                                          double deviation) {
    return fill(generator, to, count, std::normal_distribution<double>(mean, deviation));
}

curandStatus_t curandGenerateLogNormal(curandGenerator_t generator, float* to, size_t count, float mean,
                                       float deviation) {
    return fill(generator, to, count, std::lognormal_distribution<float>(mean, deviation));
}

curandStatus_t curandGenerateLogNormalDouble(curandGenerator_t generator, double* to, size_t count, double mean,
                                             double deviation) {
    return fill(generator, to, count, std::lognormal_distribution<double>(mean, deviation));
}

curandStatus_t curandGenerateLongLong(curandGenerator_t generator, unsigned long long* to, size_t count) {
    return fill(generator, to, count, [](std::mt19937_64& engine) { return engine(); });
}

curandStatus_t curandSetGeneratorOrdering(curandGenerator_t generator, curandOrdering_t ordering) {
    if (!generator) return CURAND_STATUS_NOT_INITIALIZED;
    return ordering < CURAND_ORDERING_QUASI_DEFAULT ? CURAND_STATUS_SUCCESS : CURAND_STATUS_OUT_OF_RANGE;
}

curandStatus_t curandSetQuasiRandomGeneratorDimensions(curandGenerator_t, unsigned int) { return CURAND_STATUS_TYPE_ERROR; }

curandStatus_t curandGenerateSeeds(curandGenerator_t generator) {
    return generator ? CURAND_STATUS_SUCCESS : CURAND_STATUS_NOT_INITIALIZED;
}

curandStatus_t curandGetVersion(int* version) {
    *version = 100400;
    return CURAND_STATUS_SUCCESS;
}

curandStatus_t curandGeneratePoisson(curandGenerator_t generator, unsigned int* to, size_t count, double mean) {
    return fill(generator, to, count, std::poisson_distribution<unsigned int>(mean));
}

}  // extern "C"
