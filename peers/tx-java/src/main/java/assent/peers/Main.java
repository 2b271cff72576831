package assent.peers;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.sql.SQLException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.logging.Level;
import java.util.logging.Logger;
import javax.transaction.xa.XAResource;

/**
 * One peer in one process, which runs slices when it is told to.
 *
 * Walk: arguments `PEER --branches dummy|real --folder DIR ...` · a `ready` line · then for each line on stdin one JSON line on
 * stdout: `slice THREADS MS` runs, `check` says what the branches hold, `quit` or the end of stdin ends.
 * Deliberately absent: order, rounds, ratios and judgement; they are the runner's.
 */
public final class Main {
    private final Way way;
    private final Databases databases;
    private final Sabotage sabotage;
    private final boolean plain;
    private final List<Pair> pairs = new ArrayList<>();
    private long committed;

    private Main(String peer, Map<String, String> options) throws Exception {
        Path folder = Path.of(options.get("--folder"));
        Files.createDirectories(folder);
        sabotage = Sabotage.of(options.getOrDefault("--sabotage", "none"));
        plain = peer.equals("plain");
        boolean real = options.get("--branches").equals("real");
        if (!real && plain) {
            throw new IllegalArgumentException("'plain' has nothing to commit in dummies: take --branches real");
        }
        databases = real
                ? new Databases(options.get("--postgres"), options.get("--mariadb"), "peers_" + peer.replace('-', '_'))
                : null;
        if (real) {
            databases.make(Integer.parseInt(options.getOrDefault("--threads-max", "100")));
        }
        if (peer.startsWith("narayana-")) {
            way = new Narayana(peer.substring("narayana-".length()), folder);
        } else {
            way = switch (peer) {
                case "atomikos" -> new Atomikos(folder, () -> sample(0), () -> sample(1));
                case "by-hand" -> new ByHand();
                case "plain" -> new Plain();
                default -> throw new IllegalArgumentException("no peer is called '" + peer + "'");
            };
        }
    }

    /** A resource to register, with a connection of its own. */
    private XAResource sample(int branch) {
        try {
            if (databases == null) {
                return new Dummy(branch == 0 ? "first" : "second", XAResource.XA_OK);
            }
            return (branch == 0 ? databases.postgresXa() : databases.mariadbXa()).getXAResource();
        } catch (SQLException error) {
            throw new IllegalStateException(error);
        }
    }

    private String slice(int threads, long millis) throws Exception {
        while (pairs.size() < threads) {
            pairs.add(databases == null ? new DummyPair(sabotage) : new RealPair(databases, pairs.size(), plain));
        }
        Slice slice = new Slice();
        try {
            return slice.run(way, pairs.subList(0, threads), millis);
        } finally {
            committed += slice.committed;
        }
    }

    private String check() throws SQLException {
        if (databases != null) {
            long[] found = databases.look();
            return "{\"committed\":" + committed + ",\"postgres\":" + found[0] + ",\"mariadb\":" + found[1]
                    + ",\"prepared\":" + found[2] + "}";
        }
        StringBuilder text = new StringBuilder("{\"committed\":" + committed);
        for (int branch = 0; branch < 2; branch++) {
            long[] sums = new long[5];
            for (Pair pair : pairs) {
                Dummy dummy = branch == 0 ? ((DummyPair) pair).first : ((DummyPair) pair).second;
                long[] counts = {dummy.starts, dummy.ends, dummy.prepares, dummy.commits, dummy.others};
                for (int i = 0; i < sums.length; i++) {
                    sums[i] += counts[i];
                }
            }
            text.append(branch == 0 ? ",\"first\":" : ",\"second\":");
            text.append("{\"starts\":" + sums[0] + ",\"ends\":" + sums[1] + ",\"prepares\":" + sums[2]
                    + ",\"commits\":" + sums[3] + ",\"others\":" + sums[4] + "}");
        }
        return text.append('}').toString();
    }

    private String answer(String line) {
        try {
            String[] words = line.trim().split(" +");
            return switch (words[0]) {
                case "slice" -> slice(Integer.parseInt(words[1]), Long.parseLong(words[2]));
                case "check" -> check();
                default -> throw new IllegalArgumentException("say slice THREADS MS, check or quit, not: " + line);
            };
        } catch (Exception | LinkageError error) {
            error.printStackTrace();
            return failure(error);
        }
    }

    /** The whole chain of causes in one sentence: JTA's own exceptions say little. */
    private static String failure(Throwable error) {
        StringBuilder text = new StringBuilder();
        for (Throwable cause = error; cause != null; cause = cause.getCause()) {
            text.append(text.isEmpty() ? "" : "; because ").append(cause);
        }
        String escaped = text.toString().replace("\\", "\\\\").replace("\"", "'").replaceAll("\\p{Cntrl}", " ");
        return "{\"error\":\"" + escaped + "\"}";
    }

    public static void main(String[] arguments) throws Exception {
        // Libraries may print; the protocol has the real stdout alone.
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        System.setOut(System.err);
        Logger.getLogger("").setLevel(Level.WARNING);
        Map<String, String> options = new HashMap<>();
        for (int i = 1; i + 1 < arguments.length; i += 2) {
            options.put(arguments[i], arguments[i + 1]);
        }
        Main main;
        try {
            main = new Main(arguments[0], options);
        } catch (Exception | LinkageError error) {
            error.printStackTrace();
            out.println(failure(error));
            System.exit(1);
            return;
        }
        out.println("{\"ready\":\"" + arguments[0] + "\",\"java\":\"" + System.getProperty("java.version") + "\"}");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null && !line.equals("quit"); line = in.readLine()) {
            out.println(main.answer(line));
        }
        for (Pair pair : main.pairs) {
            pair.close();
        }
        main.way.close();
        System.exit(0);
    }
}
