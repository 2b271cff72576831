package assent.peers;

/** Two commits, one after the other: a floor. Not atomic. */
final class Plain implements Way {
    @Override
    public void transaction(Pair pair) throws Exception {
        pair.work();
        pair.commitPlain();
    }
}
