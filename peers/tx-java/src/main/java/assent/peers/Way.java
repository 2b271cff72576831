package assent.peers;

/** How a transaction over two branches is committed. One for all threads. */
interface Way extends AutoCloseable {
    /** Begin, enlist both branches, work in both, commit. */
    void transaction(Pair pair) throws Exception;

    @Override
    default void close() throws Exception {}
}
