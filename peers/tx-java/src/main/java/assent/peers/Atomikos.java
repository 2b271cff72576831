package assent.peers;

import com.atomikos.datasource.xa.XATransactionalResource;
import com.atomikos.icatch.config.Configuration;
import com.atomikos.icatch.jta.UserTransactionManager;
import java.nio.file.Path;
import java.util.Properties;
import java.util.function.Supplier;
import javax.transaction.Transaction;
import javax.transaction.xa.XAResource;

/** Atomikos with its log in a file, forced at each decision. */
final class Atomikos implements Way {
    private final UserTransactionManager manager = new UserTransactionManager();

    /** A registered resource: whatever has the class, or for dummies the name, of its sample. */
    private static final class Registered extends XATransactionalResource {
        private final Supplier<XAResource> open;
        private final XAResource sample;

        Registered(String name, Supplier<XAResource> open) {
            super(name);
            this.open = open;
            sample = open.get();
        }

        @Override
        protected XAResource refreshXAConnection() {
            return open.get();
        }

        // PostgreSQL's driver calls two connections different managers; a pool would know its own, so this does.
        @Override
        public boolean usesXAResource(XAResource resource) {
            return resource.getClass() == sample.getClass()
                    && (!(resource instanceof Dummy one) || one.name.equals(((Dummy) sample).name));
        }
    }

    Atomikos(Path folder, Supplier<XAResource> first, Supplier<XAResource> second) throws Exception {
        Properties settings = Configuration.getConfigProperties().getCompletedProperties();
        settings.setProperty("com.atomikos.icatch.enable_logging", "true");
        settings.setProperty("com.atomikos.icatch.log_base_dir", folder.toString());
        settings.setProperty("com.atomikos.icatch.tm_unique_name", "peers");
        // Its 50 would refuse the 51st thread.
        settings.setProperty("com.atomikos.icatch.max_actives", "-1");
        // Its 500 rewrite the log several times a second.
        settings.setProperty("com.atomikos.icatch.checkpoint_interval",
                System.getProperty("peers.atomikos.checkpoint", "20000"));
        settings.forEach((key, value) -> Configuration.getConfigProperties().setProperty((String) key, (String) value));
        Configuration.addResource(new Registered("first", first));
        Configuration.addResource(new Registered("second", second));
        manager.init();
    }

    @Override
    public void transaction(Pair pair) throws Exception {
        manager.begin();
        Transaction transaction = manager.getTransaction();
        XAResource first = pair.first();
        XAResource second = pair.second();
        transaction.enlistResource(first);
        if (second != null) {
            transaction.enlistResource(second);
        }
        pair.work();
        transaction.delistResource(first, XAResource.TMSUCCESS);
        if (second != null) {
            transaction.delistResource(second, XAResource.TMSUCCESS);
        }
        manager.commit();
    }

    @Override
    public void close() {
        manager.close();
    }
}
