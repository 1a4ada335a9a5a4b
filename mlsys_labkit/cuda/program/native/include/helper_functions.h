// helper_functions.h: strings, timers and comparisons of the CUDA samples.
#pragma once

#include <cmath>
#include <cstdio>

#include "helper_string.h"
#include "helper_timer.h"

// Whether the data lie within epsilon of the reference, in the 2-norm relative to it.
inline bool sdkCompareL2fe(const float* reference, const float* data, const unsigned int count, const float epsilon) {
    double difference = 0;
    double length = 0;
    for (unsigned int i = 0; i < count; ++i) {
        difference += (double(reference[i]) - data[i]) * (double(reference[i]) - data[i]);
        length += double(reference[i]) * reference[i];
    }
    return length > 0 && std::sqrt(difference / length) < epsilon;
}

// Whether all but a fraction of the elements differ by no more than epsilon.
template <class T, class S>
bool compareData(const T* reference, const T* data, const unsigned int count, const S epsilon, const float threshold) {
    unsigned int wrong = 0;
    for (unsigned int i = 0; i < count; ++i) {
        if (std::fabs(double(reference[i]) - double(data[i])) > double(epsilon)) ++wrong;
    }
    return double(wrong) <= double(threshold) * count;
}

// One number a line, as the samples' regression files have them.
template <class T, class S>
bool sdkWriteFile(const char* name, const T* data, unsigned int count, const S, bool, bool append = false) {
    FILE* file = std::fopen(name, append ? "a" : "w");
    if (!file) return false;
    for (unsigned int i = 0; i < count; ++i) std::fprintf(file, "%g ", static_cast<double>(data[i]));
    std::fclose(file);
    return true;
}
