package assent.peers;

import java.nio.ByteBuffer;
import java.util.concurrent.atomic.AtomicLong;
import javax.transaction.xa.XAResource;
import javax.transaction.xa.Xid;

/** The XA verbs one after the other, no decision kept anywhere: a floor. Not atomic after a crash. */
final class ByHand implements Way {
    private final AtomicLong count = new AtomicLong();
    private final long run = System.nanoTime();

    private record Name(byte[] transaction, byte[] branch) implements Xid {
        @Override
        public int getFormatId() {
            return 0x4841;
        }

        @Override
        public byte[] getGlobalTransactionId() {
            return transaction;
        }

        @Override
        public byte[] getBranchQualifier() {
            return branch;
        }
    }

    @Override
    public void transaction(Pair pair) throws Exception {
        byte[] global = ByteBuffer.allocate(16).putLong(run).putLong(count.incrementAndGet()).array();
        XAResource[] resources = {pair.first(), pair.second()};
        Xid[] names = {new Name(global, new byte[] {1}), new Name(global, new byte[] {2})};
        for (int i = 0; i < 2; i++) {
            resources[i].start(names[i], XAResource.TMNOFLAGS);
        }
        pair.work();
        for (int i = 0; i < 2; i++) {
            resources[i].end(names[i], XAResource.TMSUCCESS);
        }
        for (int i = 0; i < 2; i++) {
            if (resources[i].prepare(names[i]) != XAResource.XA_OK) {
                throw new IllegalStateException("a branch that wrote voted read-only");
            }
        }
        for (int i = 0; i < 2; i++) {
            resources[i].commit(names[i], false);
        }
    }
}
