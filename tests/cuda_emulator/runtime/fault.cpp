#include "fault.hpp"

#include <pthread.h>
#include <signal.h>
#include <ucontext.h>

#include <cstdio>
#include <cstring>

#include "guarded.hpp"
#include "launch.hpp"

namespace cuda_on_cpu {

Fault fault;
bool faulted = false;

void record_fault_text(const char* format, std::va_list values) {
    faulted = true;
    fault = {};
    std::vsnprintf(fault.message, sizeof fault.message, format, values);
    if (position) {
        fault.in_thread = true;
        fault.block = position->block;
        fault.thread = position->thread;
    }
}

void record_fault(const char* format, ...) {
    std::va_list values;
    va_start(values, format);
    record_fault_text(format, values);
    va_end(values);
}

void fail(const char* format, ...) {
    std::va_list values;
    va_start(values, format);
    record_fault_text(format, values);
    va_end(values);
    abandon_launch();
}

namespace {

pthread_t catching_thread;
struct sigaction previous_segv, previous_bus;
stack_t previous_stack;
alignas(16) char handler_stack[64 << 10];

void on_memory_fault(int signal, siginfo_t* info, void* context) {
    if (!position || !pthread_equal(pthread_self(), catching_thread)) {
        // not a kernel's: the previous handler gets it when the access is retried
        sigaction(signal, signal == SIGSEGV ? &previous_segv : &previous_bus, nullptr);
        return;
    }
    char text[256];
    if (!running_arrays->describe(info->si_addr, text, sizeof text))
        std::snprintf(text, sizeof text, "access to address %p, which belongs to no argument", info->si_addr);
    record_fault("%s", text);
    [[maybe_unused]] const auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext;
#if defined(__x86_64__)
    fault.instruction = reinterpret_cast<const void*>(registers.gregs[REG_RIP]);
#elif defined(__aarch64__)
    fault.instruction = reinterpret_cast<const void*>(registers.pc);
#endif
    abandon_launch();
}

} // namespace

MemoryFaultsCaught::MemoryFaultsCaught() {
    catching_thread = pthread_self();
    stack_t stack{};
    stack.ss_sp = handler_stack;
    stack.ss_size = sizeof handler_stack;
    sigaltstack(&stack, &previous_stack);
    struct sigaction action {};
    action.sa_sigaction = on_memory_fault;
    // NODEFER: the handler does not return, so nothing would unblock the signal
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    sigaction(SIGSEGV, &action, &previous_segv);
    sigaction(SIGBUS, &action, &previous_bus);
}

MemoryFaultsCaught::~MemoryFaultsCaught() {
    sigaction(SIGSEGV, &previous_segv, nullptr);
    sigaction(SIGBUS, &previous_bus, nullptr);
    sigaltstack(&previous_stack, nullptr);
}

} // namespace cuda_on_cpu

// g++'s undefined-behaviour sanitizer calls these; each gets a record that begins with where in the source it happened.
// Its own runtime would print and end the process.

namespace {

struct SourceLocation {
    const char* file;
    std::uint32_t line, column;
};

struct TypeDescriptor {
    std::uint16_t kind, info;
    char name[1];
};

struct OutOfBounds {
    SourceLocation where;
    const TypeDescriptor *array, *index;
};

} // namespace

#define UNDEFINED(handler, meaning)                                                             \
    extern "C" [[noreturn]] void __ubsan_handle_##handler##_abort(const SourceLocation* where) { \
        cuda_on_cpu::fail("%s at %s:%u", meaning, where->file, where->line);                    \
    }
UNDEFINED(add_overflow, "signed addition overflows")
UNDEFINED(sub_overflow, "signed subtraction overflows")
UNDEFINED(mul_overflow, "signed multiplication overflows")
UNDEFINED(negate_overflow, "negation overflows")
UNDEFINED(divrem_overflow, "division by zero or overflow")
UNDEFINED(shift_out_of_bounds, "shift by more than the width of its type")
UNDEFINED(type_mismatch_v1, "access through a null or misaligned pointer, or beyond its object,")
UNDEFINED(pointer_overflow, "pointer arithmetic overflows")
UNDEFINED(load_invalid_value, "load of a value that its type does not have")
UNDEFINED(float_cast_overflow, "conversion of a floating-point number to an integer type that cannot hold it")
UNDEFINED(vla_bound_not_positive, "array of a length that is not positive")
UNDEFINED(nonnull_arg, "null where null is not allowed")
UNDEFINED(nonnull_return_v1, "null returned where null is not allowed")
UNDEFINED(invalid_builtin, "call of a built-in function outside of its domain")

extern "C" [[noreturn]] void __ubsan_handle_builtin_unreachable(const SourceLocation* where) {
    cuda_on_cpu::fail("code marked unreachable is reached at %s:%u", where->file, where->line);
}
extern "C" [[noreturn]] void __ubsan_handle_missing_return(const SourceLocation* where) {
    cuda_on_cpu::fail("end of a function that returns a value at %s:%u", where->file, where->line);
}
extern "C" [[noreturn]] void __ubsan_handle_out_of_bounds_abort(const OutOfBounds* record, std::uintptr_t index) {
    cuda_on_cpu::fail("out of bounds at %s:%u: index %td of an array of type %s", record->where.file, record->where.line,
                      static_cast<std::ptrdiff_t>(index), record->array->name);
}
