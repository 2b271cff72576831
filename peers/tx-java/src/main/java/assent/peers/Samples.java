package assent.peers;

import java.util.Arrays;
import java.util.List;

/** Latencies in nanoseconds; exact, by nearest rank, as `assent bench` computes them. */
final class Samples {
    private long[] nanos = new long[1 << 12];
    private int count;

    void push(long took) {
        if (count == nanos.length) {
            nanos = Arrays.copyOf(nanos, count * 2);
        }
        nanos[count++] = took;
    }

    int count() {
        return count;
    }

    static Samples merged(List<Samples> parts) {
        Samples all = new Samples();
        all.nanos = new long[Math.max(1, parts.stream().mapToInt(Samples::count).sum())];
        for (Samples part : parts) {
            System.arraycopy(part.nanos, 0, all.nanos, all.count, part.count);
            all.count += part.count;
        }
        return all;
    }

    /** One JSON object, microseconds. */
    String json() {
        long[] sorted = Arrays.copyOf(nanos, count);
        Arrays.sort(sorted);
        double mean = Arrays.stream(sorted).average().orElse(0) / 1e3;
        double variance = Arrays.stream(sorted).mapToDouble(n -> Math.pow(n / 1e3 - mean, 2)).average().orElse(0);
        StringBuilder text = new StringBuilder("{\"samples\":").append(count);
        int[] shares = {0, 25, 50, 75, 85, 90, 95, 98, 99, 100};
        for (int share : shares) {
            String name = share == 0 ? "min" : share == 100 ? "max" : "p" + share;
            text.append(",\"").append(name).append("\":").append(at(sorted, share));
        }
        return text.append(",\"mean\":").append(mean).append(",\"sd\":").append(Math.sqrt(variance)).append('}').toString();
    }

    private static double at(long[] sorted, long share) {
        if (sorted.length == 0) {
            return 0;
        }
        long rank = Math.min(sorted.length, Math.max(1, (sorted.length * share + 99) / 100));
        return sorted[(int) rank - 1] / 1e3;
    }
}
