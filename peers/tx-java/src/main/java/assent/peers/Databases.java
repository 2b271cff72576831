package assent.peers;

import java.net.URI;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import javax.sql.XAConnection;
import org.mariadb.jdbc.MariaDbDataSource;
import org.postgresql.xa.PGXADataSource;

/** The two databases by their URLs, and this peer's table in each: a row for each thread. */
final class Databases {
    private final String postgres;
    private final String mariadb;
    final String table;
    private final PGXADataSource postgresXa = new PGXADataSource();
    private final MariaDbDataSource mariadbXa;

    Databases(String postgres, String mariadb, String table) throws SQLException {
        this.postgres = jdbc(postgres, "postgresql");
        this.mariadb = jdbc(mariadb, "mariadb");
        this.table = table;
        postgresXa.setUrl(this.postgres);
        mariadbXa = new MariaDbDataSource(this.mariadb);
    }

    /** `postgresql://user:password@host:port/database`, or `mysql://...`, as JDBC writes it. */
    private static String jdbc(String url, String driver) {
        URI uri = URI.create(url);
        String[] user = String.valueOf(uri.getUserInfo()).split(":", 2);
        String address = "jdbc:" + driver + "://" + uri.getHost() + ":" + uri.getPort() + uri.getPath();
        return address + "?user=" + user[0] + (user.length > 1 ? "&password=" + user[1] : "");
    }

    Connection postgres() throws SQLException {
        return DriverManager.getConnection(postgres);
    }

    Connection mariadb() throws SQLException {
        return DriverManager.getConnection(mariadb);
    }

    XAConnection postgresXa() throws SQLException {
        return postgresXa.getXAConnection();
    }

    XAConnection mariadbXa() throws SQLException {
        return mariadbXa.getXAConnection();
    }

    /** The same tables as `assent bench real` makes: no autovacuum comes to one and not to another, HOT has room. */
    void make(int rows) throws SQLException {
        try (Connection connection = postgres(); Statement statement = connection.createStatement()) {
            statement.execute("DROP TABLE IF EXISTS " + table);
            statement.execute("CREATE TABLE " + table + " (id int PRIMARY KEY, n bigint NOT NULL)"
                    + " WITH (fillfactor = 20, autovacuum_enabled = off)");
            statement.execute("INSERT INTO " + table + " SELECT number, 0 FROM generate_series(0, " + (rows - 1) + ") AS number");
        }
        try (Connection connection = mariadb(); Statement statement = connection.createStatement()) {
            statement.execute("DROP TABLE IF EXISTS " + table);
            statement.execute("CREATE TABLE " + table + " (id int PRIMARY KEY, n bigint NOT NULL) ENGINE = InnoDB");
            for (int row = 0; row < rows; row++) {
                statement.execute("INSERT INTO " + table + " VALUES (" + row + ", 0)");
            }
        }
    }

    /** What the two tables hold, and how many branches of anybody are still prepared: asked over new connections. */
    long[] look() throws SQLException {
        try (Connection one = postgres(); Connection two = mariadb()) {
            String sum = "SELECT COALESCE(SUM(n), 0) FROM " + table;
            long prepared = first(one, "SELECT count(*) FROM pg_prepared_xacts");
            try (Statement statement = two.createStatement(); ResultSet rows = statement.executeQuery("XA RECOVER")) {
                while (rows.next()) {
                    prepared++;
                }
            }
            return new long[] {first(one, sum), first(two, sum), prepared};
        }
    }

    private static long first(Connection connection, String question) throws SQLException {
        try (Statement statement = connection.createStatement(); ResultSet rows = statement.executeQuery(question)) {
            rows.next();
            return rows.getLong(1);
        }
    }
}
