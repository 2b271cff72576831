package assent.peers;

import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.SQLException;
import javax.sql.XAConnection;
import javax.transaction.xa.XAResource;

/** A row in PostgreSQL and a row in MariaDB that no other thread touches, over sessions of this thread. */
final class RealPair implements Pair {
    private final XAConnection[] xa = new XAConnection[2];
    private final XAResource[] resources = new XAResource[2];
    private final Connection[] connections = new Connection[2];
    private final PreparedStatement[] updates = new PreparedStatement[2];

    RealPair(Databases databases, int row, boolean plain) throws SQLException {
        if (plain) {
            connections[0] = databases.postgres();
            connections[1] = databases.mariadb();
        } else {
            xa[0] = databases.postgresXa();
            xa[1] = databases.mariadbXa();
        }
        for (int i = 0; i < 2; i++) {
            if (!plain) {
                resources[i] = xa[i].getXAResource();
                connections[i] = xa[i].getConnection();
            } else {
                connections[i].setAutoCommit(false);
            }
            updates[i] = connections[i].prepareStatement("UPDATE " + databases.table + " SET n = n + 1 WHERE id = ?");
            updates[i].setInt(1, row);
        }
    }

    @Override
    public XAResource first() {
        return resources[0];
    }

    @Override
    public XAResource second() {
        return resources[1];
    }

    @Override
    public void work() throws SQLException {
        for (PreparedStatement update : updates) {
            int rows = update.executeUpdate();
            if (rows != 1) {
                throw new SQLException("an update met " + rows + " rows");
            }
        }
    }

    @Override
    public void commitPlain() throws SQLException {
        connections[0].commit();
        connections[1].commit();
    }

    @Override
    public void close() throws SQLException {
        for (int i = 0; i < 2; i++) {
            if (xa[i] != null) {
                xa[i].close();
            } else {
                connections[i].close();
            }
        }
    }
}
