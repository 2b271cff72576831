package assent.peers;

import javax.transaction.xa.XAResource;

/** Two branches that answer at once. */
final class DummyPair implements Pair {
    final Dummy first;
    final Dummy second;
    private final boolean alone;

    DummyPair(Sabotage sabotage) {
        first = new Dummy("first", sabotage == Sabotage.READ_ONLY ? XAResource.XA_RDONLY : XAResource.XA_OK);
        second = new Dummy("second", XAResource.XA_OK);
        alone = sabotage == Sabotage.ONE_BRANCH;
    }

    @Override
    public XAResource first() {
        return first;
    }

    @Override
    public XAResource second() {
        return alone ? null : second;
    }

    @Override
    public void work() {}

    @Override
    public void commitPlain() {
        throw new UnsupportedOperationException("a plain commit needs a database: take --branches real");
    }
}
