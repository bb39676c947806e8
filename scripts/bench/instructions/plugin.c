/* Counts the instructions that a program executes under qemu-user, and prints the total to stderr when it ends.
   Declares the part of QEMU's plugin interface that it uses, because Debian does not package the header. */
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>

struct qemu_plugin_tb;
void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t id, void (*translated)(uint64_t id, struct qemu_plugin_tb *block));
void qemu_plugin_register_vcpu_tb_exec_cb(
    struct qemu_plugin_tb *block, void (*executed)(unsigned cpu, void *data), int registers, void *data);
void qemu_plugin_register_atexit_cb(uint64_t id, void (*ended)(uint64_t id, void *data), void *data);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *block);

/* The version of the interface. */
int qemu_plugin_version = 1;

static uint64_t total;

static void executed(unsigned cpu, void *n_instructions)
{
    (void)cpu;
    total += (uintptr_t)n_instructions;
}

static void translated(uint64_t id, struct qemu_plugin_tb *block)
{
    (void)id;
    uintptr_t n_instructions = qemu_plugin_tb_n_insns(block);
    qemu_plugin_register_vcpu_tb_exec_cb(block, executed, 0, (void *)n_instructions);
}

static void ended(uint64_t id, void *data)
{
    (void)id;
    (void)data;
    fprintf(stderr, "instructions: %" PRIu64 "\n", total);
}

int qemu_plugin_install(uint64_t id, const void *info, int n_arguments, char **arguments)
{
    (void)info;
    (void)n_arguments;
    (void)arguments;
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    qemu_plugin_register_atexit_cb(id, ended, NULL);
    return 0;
}
