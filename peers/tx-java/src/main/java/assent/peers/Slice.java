package assent.peers;

import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicReference;

/** Threads that start together and run transactions, each with its own pair, until the time is over. */
final class Slice {
    private static final OperatingSystemMXBean MACHINE =
            (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();

    /** What was committed, whether or not the slice ended well. */
    long committed;

    /** Runs it; one JSON object. */
    String run(Way way, List<? extends Pair> pairs, long millis) throws Exception {
        CountDownLatch begin = new CountDownLatch(1);
        AtomicReference<Exception> failure = new AtomicReference<>();
        List<Samples> parts = new ArrayList<>();
        List<Thread> threads = new ArrayList<>();
        for (Pair pair : pairs) {
            Samples samples = new Samples();
            parts.add(samples);
            threads.add(new Thread(() -> {
                try {
                    begin.await();
                    cycles(way, pair, samples, millis * 1_000_000, failure);
                } catch (Exception error) {
                    failure.compareAndSet(null, error);
                }
            }, "client-" + threads.size()));
        }
        threads.forEach(Thread::start);
        long cpu = MACHINE.getProcessCpuTime();
        long start = System.nanoTime();
        begin.countDown();
        for (Thread thread : threads) {
            thread.join();
        }
        long took = System.nanoTime() - start;
        cpu = MACHINE.getProcessCpuTime() - cpu;
        Samples all = Samples.merged(parts);
        committed = all.count();
        if (failure.get() != null) {
            throw failure.get();
        }
        return "{\"threads\":" + pairs.size() + ",\"transactions\":" + all.count() + ",\"elapsed_us\":" + took / 1_000
                + ",\"cpu_us\":" + cpu / 1_000 + ",\"latency_us\":" + all.json() + "}";
    }

    private static void cycles(
            Way way, Pair pair, Samples samples, long nanos, AtomicReference<Exception> failure) throws Exception {
        long start = System.nanoTime();
        long end = start;
        while (end - start < nanos && failure.get() == null) {
            long before = end;
            way.transaction(pair);
            end = System.nanoTime();
            samples.push(end - before);
        }
    }
}
