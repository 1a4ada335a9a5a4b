// pointers.h: pointers to device memory that host code may follow, and what opens that memory to algorithms.
#pragma once

#include <cstddef>
#include <iterator>
#include <type_traits>
#include <utility>

#include "lk/host/memory.h"

extern "C" {
// Device memory is closed to host code; between these two calls it is open. Inside a kernel they do nothing.
void lk_open_device_memory();
void lk_close_device_memory();
// What an algorithm is about to read: check finds what nothing has written.
void lk_library_reads(const void* data, std::size_t bytes);
}

namespace thrust {
namespace lk_detail {

struct Opened {
    Opened() { lk_open_device_memory(); }
    ~Opened() { lk_close_device_memory(); }
    Opened(const Opened&) = delete;
    Opened& operator=(const Opened&) = delete;
};

// Elements that an algorithm reads through plain pointers; other iterators have none of their own.
template <class Iterator, class Count>
[[gnu::always_inline]] inline void note_reads(Iterator first, Count count) {
    if constexpr (std::is_pointer_v<Iterator>) {
        if (count > 0) lk_library_reads(first, static_cast<std::size_t>(count) * sizeof *first);
    }
}

}  // namespace lk_detail

// What *pointer and vector[i] give: a value to read and to assign, through memory that host code cannot touch itself.
template <class T>
class device_reference {
public:
    explicit device_reference(T* address) : address_(address) {}
    device_reference(const device_reference&) = default;

    [[gnu::always_inline]] inline operator std::remove_const_t<T>() const {
        const lk_detail::Opened open;
        lk_library_reads(address_, sizeof(T));
        return *address_;
    }

    device_reference& operator=(const T& value) {
        const lk_detail::Opened open;
        *address_ = value;
        return *this;
    }

    device_reference& operator=(const device_reference& other) {
        return *this = static_cast<T>(other);
    }

    template <class Other>
    device_reference& operator+=(const Other& value) {
        return *this = static_cast<T>(static_cast<T>(*this) + value);
    }

    template <class Other>
    device_reference& operator-=(const Other& value) {
        return *this = static_cast<T>(static_cast<T>(*this) - value);
    }

    template <class Other>
    device_reference& operator*=(const Other& value) {
        return *this = static_cast<T>(static_cast<T>(*this) * value);
    }

    device_reference& operator++() {
        return *this += 1;
    }

    T* address() const { return address_; }

private:
    T* address_;
};

template <class T, class Stream>
auto operator<<(Stream& stream, const device_reference<T>& reference)
    -> decltype(stream << std::declval<std::remove_const_t<T>>()) {
    return stream << static_cast<std::remove_const_t<T>>(reference);
}

template <class T>
class device_ptr {
public:
    using iterator_category = std::random_access_iterator_tag;
    using value_type = std::remove_const_t<T>;
    using difference_type = std::ptrdiff_t;
    using pointer = device_ptr;
    using reference = device_reference<T>;
    using element_type = T;

    device_ptr() = default;
    device_ptr(std::nullptr_t) {}
    template <class Other>
    explicit device_ptr(Other* address) : address_(static_cast<T*>(address)) {}
    template <class Other, class = std::enable_if_t<std::is_convertible_v<Other*, T*>>>
    device_ptr(const device_ptr<Other>& other) : address_(other.get()) {}

    T* get() const { return address_; }
    reference operator*() const { return reference(address_); }
    reference operator[](difference_type i) const { return reference(address_ + i); }

    device_ptr& operator+=(difference_type n) {
        address_ += n;
        return *this;
    }
    device_ptr& operator-=(difference_type n) { return *this += -n; }
    device_ptr& operator++() { return *this += 1; }
    device_ptr& operator--() { return *this += -1; }
    device_ptr operator++(int) {
        const device_ptr before = *this;
        ++*this;
        return before;
    }
    device_ptr operator--(int) {
        const device_ptr before = *this;
        --*this;
        return before;
    }
    explicit operator bool() const { return address_ != nullptr; }

    friend device_ptr operator+(device_ptr it, difference_type n) { return it += n; }
    friend device_ptr operator+(difference_type n, device_ptr it) { return it += n; }
    friend device_ptr operator-(device_ptr it, difference_type n) { return it -= n; }
    friend difference_type operator-(const device_ptr& a, const device_ptr& b) { return a.address_ - b.address_; }
    friend bool operator==(const device_ptr& a, const device_ptr& b) { return a.address_ == b.address_; }
    friend bool operator!=(const device_ptr& a, const device_ptr& b) { return a.address_ != b.address_; }
    friend bool operator<(const device_ptr& a, const device_ptr& b) { return a.address_ < b.address_; }

private:
    T* address_ = nullptr;
};

template <class T>
device_ptr<T> device_pointer_cast(T* address) { return device_ptr<T>(address); }

template <class T>
T* raw_pointer_cast(device_ptr<T> pointer) { return pointer.get(); }

template <class T>
T* raw_pointer_cast(T* pointer) { return pointer; }

template <class T>
T* raw_pointer_cast(const device_reference<T>* reference) { return reference->address(); }

template <class T>
device_ptr<T> device_malloc(size_t count) {
    T* data = nullptr;
    cudaMalloc(&data, count * sizeof(T));
    return device_ptr<T>(data);
}

template <class T>
void device_free(device_ptr<T> pointer) { cudaFree(pointer.get()); }

}  // namespace thrust
