package assent.peers;

import javax.transaction.xa.XAResource;
import javax.transaction.xa.Xid;

/** A branch that answers at once and counts what it was asked. Used by one thread at a time. */
final class Dummy implements XAResource {
    final String name;
    private final int vote;
    long starts;
    long ends;
    long prepares;
    long commits;
    long others;

    Dummy(String name, int vote) {
        this.name = name;
        this.vote = vote;
    }

    @Override
    public void start(Xid xid, int flags) {
        starts++;
    }

    @Override
    public void end(Xid xid, int flags) {
        ends++;
    }

    @Override
    public int prepare(Xid xid) {
        prepares++;
        return vote;
    }

    @Override
    public void commit(Xid xid, boolean onePhase) {
        if (onePhase) {
            others++;
        } else {
            commits++;
        }
    }

    @Override
    public void rollback(Xid xid) {
        others++;
    }

    @Override
    public void forget(Xid xid) {
        others++;
    }

    @Override
    public Xid[] recover(int flag) {
        return new Xid[0];
    }

    // All dummies of a name are one resource manager, as all connections to a database are.
    @Override
    public boolean isSameRM(XAResource other) {
        return other instanceof Dummy dummy && dummy.name.equals(name);
    }

    @Override
    public int getTransactionTimeout() {
        return 0;
    }

    @Override
    public boolean setTransactionTimeout(int seconds) {
        return false;
    }
}
