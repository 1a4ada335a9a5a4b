// iterators.h: counting, constant, transform, permutation, zip and discard iterators.
#pragma once

#include <cstddef>
#include <iterator>
#include <tuple>
#include <type_traits>
#include <utility>

#include "lk/thrust/pointers.h"

namespace thrust {
namespace lk_detail {

// A device pointer becomes a plain one, for the time that device memory is open. Anything else stays as it is.
template <class Iterator>
Iterator unwrapped(Iterator it) { return it; }

template <class T>
T* unwrapped(device_ptr<T> it) { return it.get(); }

template <class Iterator>
using Unwrapped = decltype(unwrapped(std::declval<Iterator>()));

// Arithmetic of iterators whose position alone changes: Derived has move(n), distance_to(other) and at(n).
template <class Derived, class Value, class Reference>
class Positioned {
public:
    using iterator_category = std::random_access_iterator_tag;
    using value_type = Value;
    using difference_type = std::ptrdiff_t;
    using pointer = void;
    using reference = Reference;

    Reference operator*() const { return self().at(0); }
    Reference operator[](difference_type n) const { return self().at(n); }
    Derived& operator+=(difference_type n) {
        self().move(n);
        return self();
    }
    Derived& operator-=(difference_type n) { return *this += -n; }
    Derived& operator++() { return *this += 1; }
    Derived& operator--() { return *this += -1; }
    Derived operator++(int) {
        const Derived before = self();
        *this += 1;
        return before;
    }
    Derived operator--(int) {
        const Derived before = self();
        *this += -1;
        return before;
    }
    friend Derived operator+(Derived it, difference_type n) { return it += n; }
    friend Derived operator+(difference_type n, Derived it) { return it += n; }
    friend Derived operator-(Derived it, difference_type n) { return it -= n; }
    friend difference_type operator-(const Derived& a, const Derived& b) { return b.distance_to(a); }
    friend bool operator==(const Derived& a, const Derived& b) { return b.distance_to(a) == 0; }
    friend bool operator!=(const Derived& a, const Derived& b) { return b.distance_to(a) != 0; }
    friend bool operator<(const Derived& a, const Derived& b) { return b.distance_to(a) < 0; }

private:
    Derived& self() { return static_cast<Derived&>(*this); }
    const Derived& self() const { return static_cast<const Derived&>(*this); }
};

}  // namespace lk_detail

template <class T>
class counting_iterator : public lk_detail::Positioned<counting_iterator<T>, T, T> {
public:
    counting_iterator() = default;
    explicit counting_iterator(T value) : value_(value) {}
    void move(std::ptrdiff_t n) { value_ = static_cast<T>(value_ + n); }
    std::ptrdiff_t distance_to(const counting_iterator& other) const {
        return static_cast<std::ptrdiff_t>(other.value_) - static_cast<std::ptrdiff_t>(value_);
    }
    T at(std::ptrdiff_t n) const { return static_cast<T>(value_ + n); }

private:
    T value_{};
};

template <class T>
class constant_iterator : public lk_detail::Positioned<constant_iterator<T>, T, T> {
public:
    explicit constant_iterator(T value, std::ptrdiff_t position = 0) : value_(value), position_(position) {}
    void move(std::ptrdiff_t n) { position_ += n; }
    std::ptrdiff_t distance_to(const constant_iterator& other) const { return other.position_ - position_; }
    T at(std::ptrdiff_t) const { return value_; }

private:
    T value_;
    std::ptrdiff_t position_;
};

template <class Function, class Iterator>
using lk_transformed = std::decay_t<std::invoke_result_t<Function, typename std::iterator_traits<Iterator>::value_type>>;

template <class Function, class Iterator>
class transform_iterator
    : public lk_detail::Positioned<transform_iterator<Function, Iterator>, lk_transformed<Function, Iterator>,
                                   lk_transformed<Function, Iterator>> {
public:
    transform_iterator(Iterator it, Function function) : it_(it), function_(function) {}
    void move(std::ptrdiff_t n) { it_ += n; }
    std::ptrdiff_t distance_to(const transform_iterator& other) const { return other.it_ - it_; }
    auto at(std::ptrdiff_t n) const {
        typename std::iterator_traits<Iterator>::value_type value = it_[n];
        return function_(value);
    }

private:
    Iterator it_;
    Function function_;
};

template <class Elements, class Map>
class permutation_iterator
    : public lk_detail::Positioned<permutation_iterator<Elements, Map>,
                                   typename std::iterator_traits<Elements>::value_type,
                                   typename std::iterator_traits<Elements>::reference> {
public:
    permutation_iterator(Elements elements, Map map) : elements_(elements), map_(map) {}
    void move(std::ptrdiff_t n) { map_ += n; }
    std::ptrdiff_t distance_to(const permutation_iterator& other) const { return other.map_ - map_; }
    typename std::iterator_traits<Elements>::reference at(std::ptrdiff_t n) const {
        return elements_[static_cast<std::ptrdiff_t>(map_[n])];
    }

private:
    Elements elements_;
    Map map_;
};

// Gives tuples of references, so that assigning to one writes through.
template <class Tuple>
class zip_iterator;

template <class... Iterators>
class zip_iterator<std::tuple<Iterators...>>
    : public lk_detail::Positioned<
          zip_iterator<std::tuple<Iterators...>>,
          std::tuple<typename std::iterator_traits<lk_detail::Unwrapped<Iterators>>::value_type...>,
          std::tuple<typename std::iterator_traits<lk_detail::Unwrapped<Iterators>>::reference...>> {
public:
    using Reference =
        std::tuple<typename std::iterator_traits<lk_detail::Unwrapped<Iterators>>::reference...>;

    explicit zip_iterator(std::tuple<Iterators...> iterators) : iterators_(iterators) {}
    void move(std::ptrdiff_t n) { std::apply([n](auto&... each) { ((each += n), ...); }, iterators_); }
    std::ptrdiff_t distance_to(const zip_iterator& other) const {
        return std::get<0>(other.iterators_) - std::get<0>(iterators_);
    }
    Reference at(std::ptrdiff_t n) const {
        return std::apply([n](const auto&... each) { return Reference(lk_detail::unwrapped(each)[n]...); }, iterators_);
    }
    const std::tuple<Iterators...>& get_iterator_tuple() const { return iterators_; }

private:
    std::tuple<Iterators...> iterators_;
};

struct lk_discarded {
    template <class T>
    const lk_discarded& operator=(const T&) const {
        return *this;
    }
};

template <class T = void>
class discard_iterator : public lk_detail::Positioned<discard_iterator<T>, lk_discarded, lk_discarded> {
public:
    void move(std::ptrdiff_t n) { position_ += n; }
    std::ptrdiff_t distance_to(const discard_iterator& other) const { return other.position_ - position_; }
    lk_discarded at(std::ptrdiff_t) const { return {}; }

private:
    std::ptrdiff_t position_ = 0;
};

template <class T>
counting_iterator<T> make_counting_iterator(T value) { return counting_iterator<T>(value); }

template <class T>
constant_iterator<T> make_constant_iterator(T value) { return constant_iterator<T>(value); }

template <class Iterator, class Function>
transform_iterator<Function, Iterator> make_transform_iterator(Iterator it, Function function) {
    return {it, function};
}

template <class Elements, class Map>
permutation_iterator<Elements, Map> make_permutation_iterator(Elements elements, Map map) { return {elements, map}; }

template <class... Iterators>
zip_iterator<std::tuple<Iterators...>> make_zip_iterator(std::tuple<Iterators...> iterators) {
    return zip_iterator<std::tuple<Iterators...>>(iterators);
}

template <class... Iterators>
zip_iterator<std::tuple<Iterators...>> make_zip_iterator(Iterators... iterators) {
    return zip_iterator<std::tuple<Iterators...>>(std::make_tuple(iterators...));
}

inline discard_iterator<> make_discard_iterator() { return {}; }

}  // namespace thrust
