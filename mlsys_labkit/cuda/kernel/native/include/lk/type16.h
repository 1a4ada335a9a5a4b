// type16.h: a 16-bit number and a pair of them, once for each type: what they are made from and what they turn into.
//
// Included with LK_NUMBER and LK_PAIR (the types), LK_RAW and LK_RAW_PAIR (their bits alone), LK_BITS (of a float or a double)
// and LK_VALUE (a float, of bits).

struct LK_NUMBER {
    unsigned short lk_bits;

    LK_NUMBER() = default;
    constexpr LK_NUMBER(LK_RAW raw) : lk_bits(raw.x) {}
    // clang-format off
    LK_NUMBER(float value) : lk_bits(lk::LK_BITS(value)) {}
    LK_NUMBER(double value) : lk_bits(lk::LK_BITS(value)) {}
    LK_NUMBER(short value) : LK_NUMBER(double(value)) {}
    LK_NUMBER(unsigned short value) : LK_NUMBER(double(value)) {}
    LK_NUMBER(int value) : LK_NUMBER(double(value)) {}
    LK_NUMBER(unsigned int value) : LK_NUMBER(double(value)) {}
    LK_NUMBER(long value) : LK_NUMBER(double(value)) {}
    LK_NUMBER(unsigned long value) : LK_NUMBER(double(value)) {}
    LK_NUMBER(long long value) : LK_NUMBER(double(value)) {}
    LK_NUMBER(unsigned long long value) : LK_NUMBER(double(value)) {}

    operator float() const { return lk::LK_VALUE(lk_bits); }
    operator LK_RAW() const { return {lk_bits}; }
    operator bool() const { return (lk_bits & 0x7fff) != 0; }
    operator char() const { return char(float(*this)); }
    operator signed char() const { return static_cast<signed char>(float(*this)); }
    operator unsigned char() const { return static_cast<unsigned char>(float(*this)); }
    operator short() const { return short(float(*this)); }
    operator unsigned short() const { return static_cast<unsigned short>(float(*this)); }
    operator int() const { return int(float(*this)); }
    operator unsigned int() const { return unsigned(float(*this)); }
    operator long() const { return long(float(*this)); }
    operator unsigned long() const { return static_cast<unsigned long>(float(*this)); }
    operator long long() const { return static_cast<long long>(float(*this)); }
    operator unsigned long long() const { return static_cast<unsigned long long>(float(*this)); }
    // clang-format on

    template <class Number, class = typename std::enable_if<std::is_arithmetic<Number>::value>::type>
    LK_NUMBER& operator=(Number value) {
        return *this = LK_NUMBER(value);
    }
};

struct alignas(4) LK_PAIR {
    LK_NUMBER x, y;

    LK_PAIR() = default;
    LK_PAIR(const LK_NUMBER& low, const LK_NUMBER& high) : x(low), y(high) {}
    LK_PAIR(const LK_RAW_PAIR& raw) : x(LK_RAW{raw.x}), y(LK_RAW{raw.y}) {}
    operator LK_RAW_PAIR() const { return {x.lk_bits, y.lk_bits}; }
    LK_WHOLE
};
