// vectors.h: thrust::host_vector and thrust::device_vector.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <iterator>
#include <new>
#include <vector>

#include "lk/thrust/pointers.h"

namespace thrust {

template <class T>
class device_vector;

template <class T>
class host_vector : public std::vector<T> {
public:
    using std::vector<T>::vector;
    host_vector() = default;
    host_vector(const std::vector<T>& other) : std::vector<T>(other) {}
    host_vector(const device_vector<T>& other) { assign_from(other); }

    host_vector& operator=(const device_vector<T>& other) {
        assign_from(other);
        return *this;
    }

private:
    void assign_from(const device_vector<T>& other) {
        const lk_detail::Opened open;
        this->assign(other.data().get(), other.data().get() + other.size());
    }
};

template <class T>
class device_vector {
public:
    using value_type = T;
    using size_type = size_t;
    using difference_type = std::ptrdiff_t;
    using reference = device_reference<T>;
    using const_reference = device_reference<const T>;
    using pointer = device_ptr<T>;
    using iterator = device_ptr<T>;
    using const_iterator = device_ptr<const T>;

    device_vector() = default;
    explicit device_vector(size_t count, const T& value = T()) { resize(count, value); }
    device_vector(std::initializer_list<T> values) { assign(values.begin(), values.end()); }
    device_vector(const device_vector& other) { assign(other.begin(), other.end()); }
    device_vector(device_vector&& other) noexcept { swap(other); }
    template <class Other>
    device_vector(const std::vector<Other>& other) { assign(other.begin(), other.end()); }
    template <class Other>
    device_vector(const device_vector<Other>& other) { assign(other.begin(), other.end()); }
    template <class Iterator, class = typename std::iterator_traits<Iterator>::iterator_category>
    device_vector(Iterator first, Iterator last) { assign(first, last); }
    ~device_vector() { cudaFree(data_); }

    device_vector& operator=(const device_vector& other) {
        if (this != &other) assign(other.begin(), other.end());
        return *this;
    }
    device_vector& operator=(device_vector&& other) noexcept {
        swap(other);
        return *this;
    }
    device_vector& operator=(const std::vector<T>& other) {
        assign(other.begin(), other.end());
        return *this;
    }

    template <class Iterator, class = typename std::iterator_traits<Iterator>::iterator_category>
    void assign(Iterator first, Iterator last) {
        const lk_detail::Opened open;
        clear();
        reserve(static_cast<size_t>(std::distance(first, last)));
        for (; first != last; ++first) new (data_ + size_++) T(*first);
    }
    void assign(size_t count, const T& value) {
        clear();
        resize(count, value);
    }

    void reserve(size_t capacity) {
        if (capacity <= capacity_) return;
        T* grown = nullptr;
        if (cudaMalloc(&grown, capacity * sizeof(T)) != cudaSuccess) throw std::bad_alloc();
        const lk_detail::Opened open;
        std::copy(data_, data_ + size_, grown);
        cudaFree(data_);
        data_ = grown;
        capacity_ = capacity;
    }
    void resize(size_t count, const T& value = T()) {
        reserve(count);
        const lk_detail::Opened open;
        for (size_t i = size_; i < count; ++i) new (data_ + i) T(value);
        size_ = count;
    }
    void push_back(const T& value) {
        if (size_ == capacity_) reserve(std::max<size_t>(8, 2 * capacity_));
        const lk_detail::Opened open;
        new (data_ + size_++) T(value);
    }
    void pop_back() { --size_; }
    iterator erase(iterator position) { return erase(position, position + 1); }
    iterator erase(iterator first, iterator last) {
        const lk_detail::Opened open;
        std::copy(last.get(), data_ + size_, first.get());
        size_ -= static_cast<size_t>(last - first);
        return first;
    }
    void clear() { size_ = 0; }
    void shrink_to_fit() {}
    void swap(device_vector& other) noexcept {
        std::swap(data_, other.data_);
        std::swap(size_, other.size_);
        std::swap(capacity_, other.capacity_);
    }

    size_t size() const { return size_; }
    size_t capacity() const { return capacity_; }
    bool empty() const { return size_ == 0; }
    pointer data() { return pointer(data_); }
    device_ptr<const T> data() const { return device_ptr<const T>(data_); }
    iterator begin() { return iterator(data_); }
    iterator end() { return iterator(data_ + size_); }
    const_iterator begin() const { return const_iterator(data_); }
    const_iterator end() const { return const_iterator(data_ + size_); }
    const_iterator cbegin() const { return begin(); }
    const_iterator cend() const { return end(); }
    reference operator[](size_t i) { return reference(data_ + i); }
    const_reference operator[](size_t i) const { return const_reference(data_ + i); }
    reference front() { return (*this)[0]; }
    reference back() { return (*this)[size_ - 1]; }

    friend bool operator==(const device_vector& a, const device_vector& b) {
        const lk_detail::Opened open;
        return a.size_ == b.size_ && std::equal(a.data_, a.data_ + a.size_, b.data_);
    }
    friend bool operator!=(const device_vector& a, const device_vector& b) { return !(a == b); }

private:
    T* data_ = nullptr;
    size_t size_ = 0;
    size_t capacity_ = 0;
};

template <class T>
bool operator==(const device_vector<T>& a, const std::vector<T>& b) {
    return a == device_vector<T>(b);
}

template <class T>
bool operator==(const std::vector<T>& a, const device_vector<T>& b) {
    return b == a;
}

template <class T>
T* raw_pointer_cast(const device_vector<T>&) = delete;  // as in Thrust: pass vector.data()

}  // namespace thrust

namespace thrust {

// Managed memory: host code reads and writes its elements without a copy.
template <class T>
struct lk_managed_allocator {
    using value_type = T;
    lk_managed_allocator() = default;
    template <class Other>
    lk_managed_allocator(const lk_managed_allocator<Other>&) {}
    T* allocate(size_t count) {
        T* data = nullptr;
        if (cudaMallocManaged(&data, std::max<size_t>(count, 1) * sizeof(T)) != cudaSuccess) throw std::bad_alloc();
        return data;
    }
    void deallocate(T* data, size_t) { cudaFree(data); }
    template <class Other>
    bool operator==(const lk_managed_allocator<Other>&) const {
        return true;
    }
    template <class Other>
    bool operator!=(const lk_managed_allocator<Other>&) const {
        return false;
    }
};

template <class T>
using universal_vector = std::vector<T, lk_managed_allocator<T>>;

}  // namespace thrust
