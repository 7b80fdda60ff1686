// How a library of kernels describes itself to the harness: names, parameter types, and a way to call each with erased arguments.
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

namespace cuda_on_cpu {

// Types are written as NumPy writes them: 'i', 'u', 'f', 'b', and 'V' for a struct; 'v' is void.
struct Parameter {
    unsigned size; // in bytes, of the value or of what it points to
    char kind;     // of the value or of what it points to
    bool pointer;
    bool constant; // points to const
};

struct Kernel {
    const char* name;
    void (*run)(void** arguments);
    const Parameter* parameters;
    unsigned count;
};

struct Library {
    const Kernel* kernels;
    unsigned count;
    char* (*shared_memory)(); // an address inside this thread's copy of the library's thread-local segment
};

template <class T>
constexpr char kind_of() {
    if constexpr (std::is_void_v<T>) return 'v';
    else if constexpr (std::is_same_v<T, bool>) return 'b';
    else if constexpr (std::is_enum_v<T>) return kind_of<std::underlying_type_t<T>>();
    else if constexpr (std::is_floating_point_v<T>) return 'f';
    else if constexpr (std::is_integral_v<T>) return std::is_signed_v<T> ? 'i' : 'u';
    else if constexpr (std::is_pointer_v<T>) return 'u';
    else return 'V';
}

template <class T>
constexpr unsigned size_of() {
    if constexpr (std::is_void_v<T>) return 1;
    else return sizeof(T);
}

template <class T>
constexpr Parameter parameter_of() {
    using Target = std::remove_pointer_t<T>;
    using Bare = std::remove_cv_t<Target>;
    return {size_of<Bare>(), kind_of<Bare>(), std::is_pointer_v<T>, std::is_const_v<Target>};
}

template <auto* function, class Signature = std::remove_pointer_t<decltype(function)>>
struct Erased;

template <auto* function, class... Types>
struct Erased<function, void(Types...)> {
    static constexpr Parameter parameters[sizeof...(Types) + 1] = {parameter_of<std::remove_cv_t<Types>>()..., {}};

    static void run(void** arguments) {
        [&]<std::size_t... at>(std::index_sequence<at...>) {
            function(*static_cast<std::remove_cv_t<Types>*>(arguments[at])...);
        }(std::index_sequence_for<Types...>{});
    }

    static constexpr Kernel described(const char* name) { return {name, run, parameters, sizeof...(Types)}; }
};

} // namespace cuda_on_cpu
