// libc.h: printf, assert, clock, memcpy, malloc and what writes through pointers are the worker's in a kernel: the same names and
// types, other symbols.
//
// No macros, so that a member called printf or std::memcpy still means what it says. <cassert> stays as it is: its macro
// calls __assert_fail.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <new>

extern "C" {
int printf(const char* __restrict format, ...) __asm__("lk_printf") __attribute__((format(printf, 1, 2)));
clock_t clock() noexcept __asm__("lk_clock");
void* memcpy(void* __restrict to, const void* __restrict from, size_t size) noexcept __asm__("lk_memcpy");
void* memmove(void* to, const void* from, size_t size) noexcept __asm__("lk_memmove");
int memcmp(const void* left, const void* right, size_t size) noexcept __asm__("lk_memcmp");
void* memset(void* to, int value, size_t size) noexcept __asm__("lk_memset");
void* malloc(size_t size) noexcept __asm__("lk_malloc");
void free(void* address) noexcept __asm__("lk_free");
float modff(float number, float* whole) noexcept __asm__("lk_modff");
double modf(double number, double* whole) noexcept __asm__("lk_modf");
float frexpf(float number, int* exponent) noexcept __asm__("lk_frexpf");
double frexp(double number, int* exponent) noexcept __asm__("lk_frexp");
float remquof(float dividend, float divisor, int* quotient) noexcept __asm__("lk_remquof");
double remquo(double dividend, double divisor, int* quotient) noexcept __asm__("lk_remquo");
void sincosf(float angle, float* sine, float* cosine) noexcept __asm__("lk_sincosf");
void sincos(double angle, double* sine, double* cosine) noexcept __asm__("lk_sincos");
void __assert_fail(const char* expression, const char* file, unsigned line, const char* function) noexcept
    __asm__("lk_assert_fail") __attribute__((noreturn));
}

// new and delete, as malloc and free.
inline void* operator new(size_t size) { return malloc(size); }
inline void* operator new[](size_t size) { return malloc(size); }
inline void operator delete(void* address) noexcept { free(address); }
inline void operator delete[](void* address) noexcept { free(address); }
inline void operator delete(void* address, size_t) noexcept { free(address); }
inline void operator delete[](void* address, size_t) noexcept { free(address); }

#ifdef __SANITIZE_THREAD__
// std::copy, std::fill and std::equal come down to these, which gcc may turn into moves that no hook sees. As calls of the
// functions, the simulator records them.
#define __builtin_memmove memmove
#define __builtin_memset memset
#define __builtin_memcmp memcmp
#include <bits/stl_algobase.h>
#undef __builtin_memmove
#undef __builtin_memset
#undef __builtin_memcmp
#endif
