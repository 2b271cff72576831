package assent.peers;

import java.sql.SQLException;
import javax.transaction.xa.XAResource;

/** One thread's two branches. Kept from slice to slice, as a session is. */
interface Pair extends AutoCloseable {
    XAResource first();

    XAResource second();

    /** What the application does between begin and commit. */
    void work() throws SQLException;

    /** Two plain commits, one after the other: the floor that is not atomic. */
    void commitPlain() throws SQLException;

    @Override
    default void close() throws SQLException {}
}
